//! What was decided about the rows, and what a model is worth on them, beside what always saying the same would be.

use anyhow::Result;
use corewire_data::{DataSet, Labels, Normalise};
use corewire_optim::predict::{HeldOutRows, Known, Metrics};
use corewire_optim::run::Finish;

use crate::job::{ModelKind, ProblemSpec};
use crate::out;
use crate::session::{Prepared, Session};

/// What a model is worth on some rows.
pub struct Worth {
    /// How many.
    pub rows: f64,
    /// Accuracy or R2.
    pub score: f64,
    /// What always saying the larger class, or the mean, would have scored.
    pub baseline: Option<f64>,
    /// The area under the curve, for two sides.
    pub auc: Option<f64>,
    more: String,
    is_accuracy: bool,
}

impl Worth {
    /// What metrics of so many rows say.
    pub fn of_metrics(rows: f64, metrics: &Metrics) -> Self {
        match metrics {
            Metrics::Classes(m) => {
                let log_loss = m.log_loss.map_or(String::new(), |loss| format!(", log-loss {loss:.4}"));
                let auc = m.auc.map_or(String::new(), |auc| format!(", AUC {auc:.4}"));
                let more = format!(", balanced {:.2} %{log_loss}{auc}", 100.0 * m.balanced_accuracy);
                Self { rows, score: m.accuracy, baseline: Some(m.majority), auc: m.auc, more, is_accuracy: true }
            }
            Metrics::Values(m) => {
                let more = format!(", RMSE {:.6}, MAE {:.6}", m.rmse, m.mae);
                Self { rows, score: m.r2, baseline: Some(0.0), auc: None, more, is_accuracy: false }
            }
        }
    }

    /// Of prepared rows that this process has.
    fn of(session: &Session, prepared: &Prepared, finish: &Finish, set: &DataSet) -> Option<Self> {
        let spec = session.pooled.as_ref()?.problem.spec();
        let set = DataSet { weights: Vec::new(), ..set.clone() };
        let sides = prepared.preparation.has_sides();
        let known = Known::Statistics(prepared.statistics(&finish.iterate));
        let rows = HeldOutRows { set, model: spec.model, classes: spec.classes, sides, known };
        Some(Self::of_metrics(rows.set.rows() as f64, &rows.metrics(&finish.iterate)))
    }

    /// Of held-out rows, which may lie at many machines.
    pub fn held_out(session: &Session, prepared: &Prepared, finish: &Finish) -> Option<Self> {
        let score = finish.last.score?;
        let here = session.pooled.as_ref().and_then(|pooled| pooled.held_out.as_ref());
        let known = here.and_then(|set| Self::of(session, prepared, finish, set));
        // From the sums that travelled, where the rows are elsewhere.
        known.or_else(|| {
            let baseline = match score.is_accuracy {
                true => prepared.preparation.has_sides().then_some((1.0 + score.mean_label.abs()) / 2.0),
                false => Some(0.0),
            };
            let more = if score.is_accuracy { format!(", log-loss {:.4}", score.loss) } else { String::new() };
            let (rows, is_accuracy) = (score.rows, score.is_accuracy);
            Some(Self { rows, score: score.score, baseline, auc: None, more, is_accuracy })
        })
    }

    /// Of the rows of training, where this process has them.
    pub fn training(session: &Session, prepared: &Prepared, finish: &Finish) -> Option<Self> {
        Self::of(session, prepared, finish, session.pooled.as_ref()?.problem.data()?)
    }

    /// A line, and a warning where the model is useless.
    pub fn print(&self, which: &str) -> Result<()> {
        let (rows, more) = (self.rows, &self.more);
        let baseline = match (self.baseline, self.is_accuracy) {
            (Some(share), true) => format!("; always the larger class: {:.2} %", 100.0 * share),
            (Some(_), false) => "; always the mean: 0".to_owned(),
            (None, _) => String::new(),
        };
        out::line(&match self.is_accuracy {
            true => format!("on {rows} {which} it gets {:.2} % right{more}{baseline}", 100.0 * self.score),
            false => format!("on {rows} {which} R2 is {:.4}{more}{baseline}", self.score),
        })?;
        if self.baseline.is_some_and(|baseline| self.score <= baseline) {
            let what = if self.is_accuracy { "the larger class" } else { "the mean" };
            out::line(&format!(
                "warning: the model is no better than always saying {what}; look at its columns, at `problem.alpha` and at \
                 `problem.class_weights`"
            ))?;
        }
        Ok(())
    }
}

/// alpha as scikit-learn would have it, for rows that weigh `weight` together; `None` where it has no such model.
pub fn scikit_learn(spec: &ProblemSpec, weight: f64) -> Option<String> {
    let l1 = spec.proximal.l1;
    let (penalty, share) = (spec.alpha + l1, l1 / (spec.alpha + l1));
    match spec.model {
        _ if penalty == 0.0 || spec.proximal.is_bounded() => None,
        ModelKind::Ridge if l1 > 0.0 => Some(format!("ElasticNet(alpha={penalty}, l1_ratio={share})")),
        ModelKind::Ridge => Some(format!("Ridge(alpha={})", penalty * weight)),
        ModelKind::Logistic | ModelKind::Softmax => {
            let ratio = if l1 > 0.0 { format!(", l1_ratio={share}") } else { String::new() };
            Some(format!("LogisticRegression(C={}{ratio})", 1.0 / (penalty * weight)))
        }
        _ => None,
    }
}

/// What was decided about the rows, in a line.
pub fn decided(prepared: &Prepared) -> String {
    let preparation = &prepared.preparation;
    let names = preparation.class_names();
    let columns = preparation.schema.as_ref().map_or_else(|| "label".to_owned(), |schema| schema.describe());
    let labels = match (&preparation.labels, &names[..]) {
        (Labels::Numbers { centre }, _) if *centre != 0.0 => format!(", a number, less its mean {centre:.6}"),
        (Labels::Numbers { .. }, _) => ", a number".to_owned(),
        (Labels::Classes(_), names) => format!(", {} classes", names.len()),
        (_, names) => format!(", {}", names.join(" against ")),
    };
    let scaled = match (preparation.normalise, &preparation.scaling) {
        (Normalise::Standard, Some(scaling)) if scaling.shifts.iter().all(|shift| *shift == 0.0) => {
            "; features divided by their deviations"
        }
        (Normalise::Standard, _) => "; features standardised",
        (Normalise::Channels, _) => "; pixels standardised by channel",
        (Normalise::Unit, _) => "; rows of unit norm",
        (Normalise::None, _) => "",
    };
    format!("{columns}{labels}{scaled}{}", if preparation.intercept { "; with an intercept" } else { "" })
}
