//! The question a comparison asks and its answer in one plain sentence. Decides what the numbers say, not how the page looks.

use super::{Report, RunInfo};
use crate::units::{bytes, count, scientific, seconds, times};

/// How a run ended, as the reader of a comparison sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It reached the target.
    Reached,
    /// It ran to its end, and there was no target or it was not reached.
    Short,
    /// It stopped with an error.
    Failed,
}

impl RunInfo {
    /// Whether the method is one of CORE's.
    pub(super) fn is_core(&self) -> bool {
        self.family == "core"
    }

    pub(super) fn standing(&self) -> Standing {
        match (&self.error, self.reached) {
            (Some(_), _) => Standing::Failed,
            (None, true) => Standing::Reached,
            (None, false) => Standing::Short,
        }
    }
}

impl Report {
    /// Whether the runs were to stop at a suboptimality; 0 asks for all rounds.
    pub(super) fn has_target(&self) -> bool {
        self.target > 0.0
    }

    /// What a run is judged by: seconds on the link where there is one, else what a machine handed over and got back.
    pub(super) fn cost(&self, run: &RunInfo) -> f64 {
        if self.link.is_some() { run.link_seconds.unwrap_or(f64::NAN) } else { run.wire_bytes }
    }

    /// A cost in its unit.
    pub(super) fn shown(&self, cost: f64) -> String {
        if self.link.is_some() { seconds(cost) } else { bytes(cost) }
    }

    /// Indices of the runs, best first: those that reached the target by their cost, then the others by the best value they saw, then
    /// those with an error.
    pub(super) fn ranking(&self) -> Vec<usize> {
        let key = |run: &RunInfo| {
            let measure = if run.standing() == Standing::Reached { self.cost(run) } else { run.best };
            // A quantity that is not known goes last, whatever the sign of its NaN.
            (run.standing(), if measure.is_nan() { f64::INFINITY } else { measure })
        };
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by(|&a, &b| {
            let ((standing_a, measure_a), (standing_b, measure_b)) = (key(&self.runs[a]), key(&self.runs[b]));
            standing_a.cmp(&standing_b).then(measure_a.total_cmp(&measure_b))
        });
        order
    }

    /// The cost of the run that reached the target for the least.
    pub(super) fn least_cost(&self) -> Option<f64> {
        let best = &self.runs[*self.ranking().first()?];
        (best.standing() == Standing::Reached && self.cost(best) > 0.0).then(|| self.cost(best))
    }
}

/// The question of a comparison.
pub(super) fn question(report: &Report) -> String {
    match (report.has_target(), report.runs.len()) {
        (true, 1) => format!("What does it cost to come within {} of the optimum?", scientific(report.target)),
        (true, _) => {
            let cost = if report.link.is_some() { "in the least time on the link" } else { "with the fewest bytes" };
            format!("Which method comes within {} of the optimum {cost}?", scientific(report.target))
        }
        (false, _) if report.problem.rounds_per_epoch.is_some() => {
            "How far does each method bring the loss down, and for how many bytes?".to_string()
        }
        (false, _) => "How close to the optimum does each method come, and for how many bytes?".to_string(),
    }
}

/// The answer in one sentence, with what does not flatter CORE said as plainly as what does.
pub(crate) fn conclusion(report: &Report) -> String {
    let ranked: Vec<&RunInfo> = report.ranking().into_iter().map(|i| &report.runs[i]).collect();
    let of = |standing: Standing| -> Vec<&RunInfo> {
        ranked.iter().copied().filter(|run| run.standing() == standing).collect()
    };
    let (reached, short, failed) = (of(Standing::Reached), of(Standing::Short), of(Standing::Failed));
    if ranked.is_empty() {
        return "No method was run.".to_string();
    }
    if failed.len() == ranked.len() {
        return match failed[..] {
            [only] => format!("{} stopped with an error.", only.label),
            _ => format!("All {} methods stopped with an error.", failed.len()),
        };
    }
    let mut sentence = match (reached.first(), report.has_target()) {
        (Some(best), _) => won(report, best, &reached, ranked.len()),
        (None, true) => missed(report, &short, ranked.len()),
        (None, false) => untargeted(report, &short),
    };
    let mut rest = Vec::new();
    // "The only one" has said it already.
    if reached.len() > 1 && !short.is_empty() {
        rest.push(format!("{} of {} methods never reached it", short.len(), ranked.len()));
    }
    if !failed.is_empty() {
        rest.push(format!("{} stopped with an error", failed.len()));
    }
    if !rest.is_empty() {
        sentence.push_str("; ");
        sentence.push_str(&rest.join(" and "));
    }
    sentence.push('.');
    sentence
}

/// Someone reached the target.
fn won(report: &Report, best: &RunInfo, reached: &[&RunInfo], runs: usize) -> String {
    let target = scientific(report.target);
    let cost = spent(report, best, " in all");
    let label = &best.label;
    if runs == 1 {
        return format!("{label} reached {target} in {} {cost}", rounds(best));
    }
    let Some(&next) = reached.get(1) else {
        return format!("{label} was the only one of {runs} methods to reach {target}, {cost}");
    };
    let fewer = |other: &RunInfo| fewer(report, best, other);
    if best.is_core() {
        let mut text = format!("{label} reached {target} {cost}, {} {}, the next best", fewer(next), next.label);
        if next.is_core() {
            match reached.iter().find(|run| !run.is_core()) {
                Some(other) => {
                    text.push_str(&format!(", and {} {}, the best that is not CORE", fewer(other), other.label));
                }
                None if report.runs.iter().any(|run| !run.is_core()) => text.push_str("; only CORE methods reached it"),
                None => {}
            }
        }
        return text;
    }
    let timed = report.link.is_some();
    let (least, many) = if timed { ("first", "long") } else { ("with the fewest bytes", "many") };
    let text = format!("{label} reached {target} {least}, {}", cost.trim_start_matches("with "));
    match reached.iter().find(|run| run.is_core()) {
        Some(core) => {
            let much = match report.cost(core) / report.cost(best) {
                ratio if ratio < 1.005 => format!("as {many}"),
                ratio => format!("{} times as {many}", times(ratio)),
            };
            let cost = report.shown(report.cost(core));
            format!("{text}; the best CORE method, {}, took {much} ({cost})", core.label)
        }
        None if report.runs.iter().any(RunInfo::is_core) => format!("{text}; no CORE method reached it"),
        None => format!("{text}, {} {}, the next best", fewer(next), next.label),
    }
}

/// What a run took, to follow a verb.
fn spent(report: &Report, run: &RunInfo, whole: &str) -> String {
    let cost = report.shown(report.cost(run));
    if report.link.is_some() { format!("in {cost} on the link") } else { format!("with {cost} per machine{whole}") }
}

/// There was a target, and nobody reached it.
fn missed(report: &Report, short: &[&RunInfo], runs: usize) -> String {
    let target = scientific(report.target);
    let closest = short[0];
    let spent = format!("after {} {}", rounds(closest), spent(report, closest, ""));
    match (runs, closest.best.is_finite()) {
        (1, true) => {
            format!("{} did not reach {target}: it came to {} {spent}", closest.label, scientific(closest.best))
        }
        (1, false) => format!("{} did not reach {target} {spent}", closest.label),
        (_, true) => {
            format!(
                "None of the {runs} methods reached {target}; {} came closest, {} {spent}",
                closest.label,
                scientific(closest.best)
            )
        }
        (_, false) => format!("None of the {runs} methods reached {target}"),
    }
}

/// There was no target.
fn untargeted(report: &Report, short: &[&RunInfo]) -> String {
    let closest = short[0];
    let spent = format!("{} {}", rounds(closest), spent(report, closest, ""));
    match (short.len(), closest.best.is_finite()) {
        (_, true) if report.problem.rounds_per_epoch.is_some() => {
            let share = scientific(closest.best);
            format!("{} brought the loss down the furthest, to {share} of what it was, in {spent}", closest.label)
        }
        (1, true) => format!("{} came to {} in {spent}; no target was set", closest.label, scientific(closest.best)),
        (_, true) => {
            format!("{} came closest, {} in {spent}; no target was set", closest.label, scientific(closest.best))
        }
        (_, false) => "No target was set, and how far the methods are from the optimum is not known".to_string(),
    }
}

/// `5.1 times fewer bytes than`, to be followed by a name.
fn fewer(report: &Report, best: &RunInfo, other: &RunInfo) -> String {
    let (many, fewer) =
        if report.link.is_some() { ("as long as", "less time than") } else { ("as many bytes as", "fewer bytes than") };
    match report.cost(other) / report.cost(best) {
        ratio if ratio < 1.005 => many.to_string(),
        ratio if ratio.is_finite() => format!("{} times {fewer}", times(ratio)),
        _ => fewer.to_string(),
    }
}

fn rounds(run: &RunInfo) -> String {
    if run.rounds == 1 { "1 round".to_string() } else { format!("{} rounds", count(run.rounds)) }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// `(label, family, reached, total bytes)` in this order.
    fn with_runs(runs: &[(&str, &str, bool, f64)]) -> Report {
        let mut report = sample::sample();
        report.link = None;
        let template = report.runs[0].clone();
        report.runs = runs
            .iter()
            .map(|&(label, family, reached, total)| RunInfo {
                method: label.into(),
                label: label.into(),
                family: family.into(),
                reached,
                rounds: 412,
                best: if reached { 9e-7 } else { 2e-4 },
                up_bytes: total / 2.0,
                down_bytes: total / 2.0,
                wire_bytes: total,
                error: None,
                ..template.clone()
            })
            .collect();
        report
    }

    #[test]
    fn a_win_of_core_is_told_against_the_next_best() {
        let report = with_runs(&[
            ("cg", "baseline", true, 62_730.0),
            ("core-cg", "core", true, 12_300.0),
            ("qsgd", "compression", false, 9e9),
            ("sgd", "baseline", false, 1e6),
        ]);
        assert_eq!(
            conclusion(&report),
            "core-cg reached 1e-6 with 12.3 kB per machine in all, 5.1 times fewer bytes than cg, the next best; \
             2 of 4 methods never reached it."
        );
    }

    #[test]
    fn a_win_among_core_methods_names_the_best_other_too() {
        let report = with_runs(&[
            ("core-cg", "core", true, 1e4),
            ("core-agd", "core", true, 2e4),
            ("cg", "baseline", true, 5e4),
        ]);
        assert_eq!(
            conclusion(&report),
            "core-cg reached 1e-6 with 10 kB per machine in all, 2 times fewer bytes than core-agd, the next best, and 5 times fewer \
             bytes than cg, the best that is not CORE."
        );
        let report = with_runs(&[
            ("core-cg", "core", true, 1e4),
            ("core-agd", "core", true, 1e4),
            ("cg", "baseline", false, 5e4),
        ]);
        assert_eq!(
            conclusion(&report),
            "core-cg reached 1e-6 with 10 kB per machine in all, as many bytes as core-agd, the next best; only CORE methods reached it; \
             1 of 3 methods never reached it."
        );
    }

    #[test]
    fn a_loss_of_core_is_said() {
        let report = with_runs(&[("core-gd", "core", true, 25_000.0), ("cg", "baseline", true, 10_000.0)]);
        assert_eq!(
            conclusion(&report),
            "cg reached 1e-6 with the fewest bytes, 10 kB per machine in all; the best CORE method, core-gd, \
             took 2.5 times as many (25 kB)."
        );
        let report = with_runs(&[
            ("core-gd", "core", false, 25_000.0),
            ("cg", "baseline", true, 10_000.0),
            ("cgd", "baseline", true, 20_000.0),
        ]);
        assert_eq!(
            conclusion(&report),
            "cg reached 1e-6 with the fewest bytes, 10 kB per machine in all; no CORE method reached it; 1 of 3 methods never reached it."
        );
    }

    #[test]
    fn with_a_link_everything_is_told_in_seconds() {
        let mut report = with_runs(&[
            ("core-cg", "core", true, 1e4),
            ("cg", "baseline", true, 2e4),
            ("lbfgs", "baseline", true, 3e4),
        ]);
        report.link = sample::sample().link;
        for (run, seconds) in report.runs.iter_mut().zip([3.0, 1.5, 2.0]) {
            run.link_seconds = Some(seconds);
        }
        assert_eq!(report.ranking(), [1, 2, 0]);
        assert_eq!(
            conclusion(&report),
            "cg reached 1e-6 first, in 1.5 s on the link; the best CORE method, core-cg, took 2 times as long (3 s)."
        );
        report.runs[0].link_seconds = Some(0.5);
        assert_eq!(
            conclusion(&report),
            "core-cg reached 1e-6 in 500 ms on the link, 3 times less time than cg, the next best."
        );
        assert!(question(&report).ends_with("of the optimum in the least time on the link?"));
    }

    #[test]
    fn one_run_is_told_alone() {
        let report = with_runs(&[("core-cg", "core", true, 12_300.0)]);
        assert_eq!(conclusion(&report), "core-cg reached 1e-6 in 412 rounds with 12.3 kB per machine in all.");
        let report = with_runs(&[("core-cg", "core", false, 12_300.0)]);
        assert_eq!(
            conclusion(&report),
            "core-cg did not reach 1e-6: it came to 2e-4 after 412 rounds with 12.3 kB per machine."
        );
        let report = with_runs(&[("core-cg", "core", true, 12_300.0), ("cg", "baseline", false, 1e9)]);
        assert_eq!(
            conclusion(&report),
            "core-cg was the only one of 2 methods to reach 1e-6, with 12.3 kB per machine in all."
        );
    }

    #[test]
    fn nobody_reached_it_is_said() {
        let mut report = with_runs(&[("core-cg", "core", false, 12_300.0), ("cg", "baseline", false, 1e4)]);
        report.runs[1].best = 1e-5;
        assert_eq!(
            conclusion(&report),
            "None of the 2 methods reached 1e-6; cg came closest, 1e-5 after 412 rounds with 10 kB per machine."
        );
        report.runs.iter_mut().for_each(|run| run.best = f64::NAN);
        assert_eq!(conclusion(&report), "None of the 2 methods reached 1e-6.");
        report.target = 0.0;
        assert_eq!(
            conclusion(&report),
            "No target was set, and how far the methods are from the optimum is not known."
        );
    }

    #[test]
    fn errors_are_counted_apart() {
        let mut report =
            with_runs(&[("a", "core", true, 1e3), ("b", "baseline", true, 2e3), ("c", "local", false, 1.0)]);
        report.runs[2].error = Some("diverged".into());
        assert!(conclusion(&report).ends_with("the next best; 1 stopped with an error."), "{}", conclusion(&report));
        report.runs.iter_mut().for_each(|run| run.error = Some("no".into()));
        assert_eq!(conclusion(&report), "All 3 methods stopped with an error.");
        report.runs.truncate(1);
        assert_eq!(conclusion(&report), "a stopped with an error.");
        report.runs.clear();
        assert_eq!(conclusion(&report), "No method was run.");
    }

    #[test]
    fn unknown_bytes_never_rank_first() {
        let mut report = with_runs(&[("a", "core", true, -f64::NAN), ("b", "baseline", true, 2e3)]);
        assert_eq!(report.ranking(), [1, 0]);
        report.runs[0].best = f64::NAN;
        report.runs[0].reached = false;
        assert_eq!(report.ranking(), [1, 0]);
    }
}
