//! The report of a comparison: one HTML file that needs no network, and the shape of `results.json` it is made from.
//! Measures nothing and runs nothing; what it shows is what the runs recorded.
//!
//! # Layout
//! `answer` says in one sentence what the numbers say, `table` lays out the runs, `units` writes numbers for people, `page.html`,
//! `page.css` and `page.js` are the page. The table and all words are in the HTML; only the plots are drawn by the script.

mod conclusion;
#[cfg(test)]
pub(crate) mod sample;
mod table;

use serde::{Deserialize, Deserializer, Serialize};

use crate::units::{UNKNOWN, count, scientific, significant};
pub(crate) use conclusion::conclusion;

/// Everything a comparison found: the file `results.json`.
///
/// JSON has no NaN and no infinity: both are written as null and read back as NaN, so a round trip never fails.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// What the reader sees first, above the question.
    pub title: String,
    /// The command line that made it.
    pub command: String,
    /// How the baselines came to their steps; nothing in results of before.
    #[serde(default)]
    pub tuning: String,
    /// The version of corewire.
    pub version: String,
    /// When, in words.
    pub created: String,
    /// The machine it ran on, in words.
    pub system: String,
    /// What was solved.
    pub problem: ProblemInfo,
    /// The relative suboptimality at which a run stops; 0 where all rounds were run.
    #[serde(deserialize_with = "null_is_nan")]
    pub target: f64,
    /// The modelled link, where there is one.
    pub link: Option<LinkInfo>,
    /// The leading eigenvalues, largest first; that at index i is plotted at rank i + 1, so cut the tail rather than leave out some
    /// between. May be empty.
    #[serde(deserialize_with = "nulls_are_nan")]
    pub eigenvalues: Vec<f64>,
    /// One entry per method, in the order they were asked for.
    pub runs: Vec<RunInfo>,
}

/// The problem all methods solved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProblemInfo {
    /// Name or path of the data.
    pub data: String,
    /// The model.
    pub model: String,
    /// Rows over all machines.
    pub rows: usize,
    /// d.
    pub dim: usize,
    /// n.
    pub machines: usize,
    /// The regulariser's weight.
    #[serde(deserialize_with = "null_is_nan")]
    pub alpha: f64,
    /// How the rows were dealt out.
    pub split: String,
    /// f at x0.
    #[serde(deserialize_with = "null_is_nan")]
    pub initial: f64,
    /// f*, where it is known.
    pub optimum: Option<f64>,
    /// tr(A).
    #[serde(deserialize_with = "null_is_nan")]
    pub trace: f64,
    /// L.
    #[serde(deserialize_with = "null_is_nan")]
    pub smoothness: f64,
    /// mu.
    #[serde(deserialize_with = "null_is_nan")]
    pub strong_convexity: f64,
    /// d_eff = sum l/(l + sqrt(L mu)).
    #[serde(deserialize_with = "null_is_nan")]
    pub effective_dimension: f64,
    /// The seed, as the user may repeat it.
    pub seed: String,
    /// Rounds of a pass over all rows, where a network is trained; nothing in results of before.
    #[serde(default)]
    pub rounds_per_epoch: Option<f64>,
}

/// The modelled link of every machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LinkInfo {
    /// Bandwidth.
    #[serde(deserialize_with = "null_is_nan")]
    pub mbit_s: f64,
    /// Time there and back.
    #[serde(deserialize_with = "null_is_nan")]
    pub rtt_ms: f64,
    /// What a message costs beside its payload.
    #[serde(deserialize_with = "null_is_nan")]
    pub overhead_bytes: f64,
}

/// One method's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunInfo {
    /// The id with its parameters: `ef21:k=15`.
    pub method: String,
    /// The name shown.
    pub label: String,
    /// `core`, `baseline`, `compression`, `local`, ...; only `core` is treated apart.
    pub family: String,
    /// Whether the target was reached.
    pub reached: bool,
    /// Rounds run.
    pub rounds: u64,
    /// Message exchanges.
    pub trips: u64,
    /// Relative suboptimality at the end.
    #[serde(deserialize_with = "null_is_nan")]
    pub relative: f64,
    /// The least relative suboptimality seen.
    #[serde(deserialize_with = "null_is_nan")]
    pub best: f64,
    /// f at the end.
    #[serde(deserialize_with = "null_is_nan")]
    pub value: f64,
    /// Payload a machine handed over, mean over machines.
    #[serde(deserialize_with = "null_is_nan")]
    pub up_bytes: f64,
    /// Payload that came back to a machine, mean over machines.
    #[serde(deserialize_with = "null_is_nan")]
    pub down_bytes: f64,
    /// Everything on the wire, both ways, mean over machines.
    #[serde(deserialize_with = "null_is_nan")]
    pub wire_bytes: f64,
    /// Time it took here.
    #[serde(deserialize_with = "null_is_nan")]
    pub seconds: f64,
    /// Time it would take on the modelled link.
    pub link_seconds: Option<f64>,
    /// Accuracy or R2 on held-out rows at the end.
    #[serde(default)]
    pub score: Option<f64>,
    /// What tuning chose.
    pub tuned: Option<String>,
    /// A remark for the reader.
    pub note: Option<String>,
    /// Why it stopped, where it did not end by itself.
    pub error: Option<String>,
    /// The course of the run, thinned to a few hundred points.
    pub trace: Vec<Point>,
}

/// The state of a run after a round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Point {
    /// Rounds done.
    pub round: u64,
    /// Relative suboptimality.
    #[serde(deserialize_with = "null_is_nan")]
    pub relative: f64,
    /// Payload up until now.
    #[serde(deserialize_with = "null_is_nan")]
    pub up_bytes: f64,
    /// Payload down until now.
    #[serde(deserialize_with = "null_is_nan")]
    pub down_bytes: f64,
    /// Everything on the wire until now.
    #[serde(deserialize_with = "null_is_nan")]
    pub wire_bytes: f64,
    /// Time until now.
    #[serde(deserialize_with = "null_is_nan")]
    pub seconds: f64,
    /// Time on the modelled link until now.
    #[serde(deserialize_with = "null_is_nan")]
    pub link_seconds: f64,
    /// Accuracy or R2 on held-out rows.
    #[serde(default)]
    pub score: Option<f64>,
}

fn null_is_nan<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or(f64::NAN))
}

fn nulls_are_nan<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<f64>, D::Error> {
    let values: Vec<Option<f64>> = Vec::deserialize(source)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
}

/// The page, complete in itself.
pub(crate) fn render(report: &Report) -> String {
    fill(include_str!("page.html"), |slot| match slot {
        "css" => include_str!("page.css").to_string(),
        "js" => include_str!("page.js").to_string(),
        "data" => data(report),
        "title" => escape(&report.title),
        "question" => prose(&conclusion::question(report)),
        "answer" => prose(&conclusion(report)),
        "facts" => facts(report),
        // With a link, seconds are what counts, and come first.
        "link_first" => {
            if report.link.is_some() {
                link_figure(report)
            } else {
                String::new()
            }
        }
        "link_hint" => {
            if report.link.is_none() {
                link_figure(report)
            } else {
                String::new()
            }
        }
        "rounds" => rounds_figure(report).to_owned(),
        "score" => score_figures(report),
        "curves_lede" => curves_lede(report),
        "target_note" => target_note(report),
        "table" => table::table(report),
        "spectrum" => spectrum(report),
        "command" => escape(&report.command),
        "provenance" => provenance(report),
        other => unreachable!("the template asks for `{other}`"),
    })
}

/// Puts a text in every `{{slot}}`, in one pass: a value that looks like a slot stays what it is.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut pieces = template.split("{{");
    let mut out = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let (slot, rest) = piece.split_once("}}").expect("every slot of the template is closed");
        out.push_str(&value(slot));
        out.push_str(rest);
    }
    out
}

/// Text for an element or a quoted attribute.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A sentence in which no short name breaks at its hyphen and no number stands apart from its unit.
fn prose(text: &str) -> String {
    let mut out = String::new();
    for word in escape(text).split(' ') {
        let unit = ["B", "kB", "MB", "GB", "TB", "PB"].contains(&word.trim_end_matches([',', '.', ';', ')']));
        if !out.is_empty() {
            out.push_str(if unit { "&nbsp;" } else { " " });
        }
        if word.contains('-') && word.len() <= 24 {
            out.push_str(&format!("<span class=\"whole\">{word}</span>"));
        } else {
            out.push_str(word);
        }
    }
    out
}

/// What the script draws. In JSON `<`, `>` and `&` stand only inside strings, where the escapes mean the same: nothing can close the script
/// element.
fn data(report: &Report) -> String {
    let runs: Vec<_> = report
        .runs
        .iter()
        .map(|run| {
            let points: Vec<_> = run
                .trace
                .iter()
                .map(|p| {
                    let [relative, up, down, seconds, link, wire] =
                        [p.relative, p.up_bytes, p.down_bytes, p.seconds, p.link_seconds, p.wire_bytes].map(six_digits);
                    (p.round, relative, up, down, seconds, link, wire, p.score.and_then(six_digits))
                })
                .collect();
            serde_json::json!({
                "label": run.label,
                "core": run.is_core(),
                "baseline": run.family == "baseline",
                "standing": match run.standing() {
                    conclusion::Standing::Reached => "reached",
                    conclusion::Standing::Short => "short",
                    conclusion::Standing::Failed => "failed",
                },
                "cost": match run.standing() {
                    conclusion::Standing::Reached => report.shown(report.cost(run)),
                    _ => String::new(),
                },
                "rounds": run.rounds,
                "points": points,
            })
        })
        .collect();
    let problem = &report.problem;
    let view = serde_json::json!({
        "target": six_digits(report.target),
        "link": report.link.is_some(),
        "rounds_per_epoch": problem.rounds_per_epoch,
        "ranking": report.ranking(),
        "runs": runs,
        "spectrum": thinned(&report.eigenvalues),
        "strong_convexity": six_digits(problem.strong_convexity),
        "effective_dimension": six_digits(problem.effective_dimension),
    });
    view.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// More digits than a screen has pixels; null where there is no number.
fn six_digits(value: f64) -> Option<f64> {
    value.is_finite().then(|| format!("{value:.5e}").parse().expect("a formatted number is a number"))
}

/// `(rank, eigenvalue)`, about 400 of them evenly on a logarithmic axis, first and last always.
fn thinned(eigenvalues: &[f64]) -> Vec<(usize, Option<f64>)> {
    let most = eigenvalues.len() as f64;
    let mut ranks: Vec<usize> = (0..=400).map(|i| most.powf(i as f64 / 400.0).round() as usize).collect();
    ranks.dedup();
    ranks
        .into_iter()
        .filter(|&rank| 1 <= rank && rank <= eigenvalues.len())
        .map(|rank| (rank, six_digits(eigenvalues[rank - 1])))
        .collect()
}

/// Pairs of a name and its value; the value is HTML.
fn definitions(class: &str, pairs: &[(&str, String)]) -> String {
    let rows: String =
        pairs.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>")).collect();
    format!("<dl class=\"{class}\">{rows}</dl>")
}

fn facts(report: &Report) -> String {
    let problem = &report.problem;
    let mut pairs = vec![
        ("Data", escape(&problem.data)),
        ("Model", escape(&problem.model)),
        ("Rows", count(problem.rows as u64)),
        ("Dimension d", count(problem.dim as u64)),
        ("Machines", count(problem.machines as u64)),
        ("Split", escape(&problem.split)),
        ("Regulariser α", scientific(problem.alpha)),
    ];
    if report.has_target() {
        pairs.push(("Target", scientific(report.target)));
    }
    if let Some(link) = &report.link {
        pairs.push(("Modelled link", format!("{} Mbit/s, {} ms", plain(link.mbit_s), plain(link.rtt_ms))));
    }
    definitions("facts", &pairs)
}

/// A number the user wrote, as it was written.
fn plain(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { UNKNOWN.to_string() }
}

fn link_figure(report: &Report) -> String {
    let Some(link) = &report.link else {
        return "<div class=\"hint\"><h3>Seconds on a link</h3><p>No link was modelled. Add one to the job and run the comparison again: the \
                same runs are then also shown against the time they would take.</p><pre><code>[link]\nmbit_s = 10\nrtt_ms = 40\n\
                overhead_bytes = 66</code></pre></div>"
            .to_string();
    };
    format!(
        "<figure class=\"plot hero\" data-plot=\"link\"><figcaption><h3>Against seconds on the link</h3><p>Modelled: {} Mbit/s, {} ms there and \
         back, {} B on top of a message</p></figcaption></figure>",
        plain(link.mbit_s),
        plain(link.rtt_ms),
        plain(link.overhead_bytes)
    )
}

fn rounds_figure(report: &Report) -> &'static str {
    match report.problem.rounds_per_epoch {
        Some(_) => {
            "<figure class=\"plot\" data-plot=\"rounds\"><figcaption><h3>Against epochs</h3><p>Passes over all rows</p></figcaption></figure>"
        }
        None => {
            "<figure class=\"plot\" data-plot=\"rounds\"><figcaption><h3>Against rounds</h3><p>Iterations of each method</p></figcaption>\
             </figure>"
        }
    }
}

fn score_figures(report: &Report) -> String {
    let figure = |plot: &str, against: &str| {
        format!(
            "<figure class=\"plot\" data-plot=\"{plot}\"><figcaption><h3>Score on held-out rows</h3><p>Accuracy, or R2, against {against}\
             </p></figcaption></figure>"
        )
    };
    match (report.runs.iter().any(|run| run.score.is_some()), report.problem.rounds_per_epoch) {
        (false, _) => String::new(),
        (true, None) => figure("score", "bytes on the wire per machine"),
        (true, Some(_)) => figure("score", "bytes on the wire per machine") + &figure("score_rounds", "epochs"),
    }
}

/// What the curves show.
fn curves_lede(report: &Report) -> String {
    let (title, measure) = match report.problem.rounds_per_epoch {
        Some(_) => (
            "The way down",
            "The loss on the rows of training, as a share of what it was at the start, <span class=\"whole\"><i>f</i>(<i>x</i>) / \
             <i>f</i>(<i>x</i><sub>0</sub>)</span>, of every method on the same network.",
        ),
        None => (
            "The way to the optimum",
            "Relative suboptimality, <span class=\"whole\">(<i>f</i>(<i>x</i>) − <i>f</i>*) / (<i>f</i>(<i>x</i><sub>0</sub>) − \
             <i>f</i>*)</span>, of every method on the same problem.",
        ),
    };
    format!("<h2 id=\"curves-title\">{title}</h2>\n<p class=\"lede\">{measure} {}</p>", curves_note(report))
}

fn curves_note(report: &Report) -> &'static str {
    match (report.runs.iter().any(RunInfo::is_core), report.has_target()) {
        (true, true) => "CORE methods are the heavy warm lines; a dot marks where a method reached the target.",
        (true, false) => "CORE methods are the heavy warm lines.",
        (false, true) => "A dot marks where a method reached the target.",
        (false, false) => "",
    }
}

fn target_note(report: &Report) -> String {
    let target = scientific(report.target);
    let cost = if report.link.is_some() { "seconds on the link" } else { "bytes" };
    let all_reached = report.runs.iter().all(|run| run.standing() == conclusion::Standing::Reached);
    match (report.has_target(), report.runs.len(), all_reached) {
        (true, 1, _) => {
            "A method that is run alone has nothing to be measured against; these are its own numbers.".to_string()
        }
        (true, _, true) => format!("Sorted by the {cost} each method needed to reach {target}."),
        (true, _, false) => format!(
            "Sorted by the {cost} each method needed to reach {target}; those that never did stand at the end, with the best they saw and what \
             they spent on it."
        ),
        (false, ..) => {
            "No target was set: every method ran all its rounds, and the table is sorted by the best it saw."
                .to_string()
        }
    }
}

fn spectrum(report: &Report) -> String {
    let problem = &report.problem;
    let ratio = problem.trace / problem.smoothness;
    let numbers = definitions(
        "stats",
        &[
            ("Trace <i>tr A</i>", significant(problem.trace)),
            ("Smoothness <i>L</i>", significant(problem.smoothness)),
            ("Strong convexity <i>μ</i>", significant(problem.strong_convexity)),
            ("Condition <i>L/μ</i>", significant(problem.smoothness / problem.strong_convexity)),
            ("<i>tr A / L</i>", significant(ratio)),
            ("Effective dimension <i>d</i><sub>eff</sub>", significant(problem.effective_dimension)),
        ],
    );
    let plot = if report.eigenvalues.iter().any(|value| *value > 0.0) {
        let shown = report.eigenvalues.len();
        let of = if shown < problem.dim {
            format!("The leading {} of {}", count(shown as u64), count(problem.dim as u64))
        } else {
            format!("All {}", count(shown as u64))
        };
        format!(
            "<figure class=\"plot\" data-plot=\"spectrum\"><figcaption><h3>Eigenvalues by rank</h3><p>{of}, both axes logarithmic</p>\
             </figcaption></figure>"
        )
    } else {
        "<p class=\"quiet\">The eigenvalues were not computed for this problem; only the numbers above are known.</p>"
            .to_string()
    };
    numbers + &plot
}

fn provenance(report: &Report) -> String {
    let problem = &report.problem;
    let mut pairs = vec![
        ("Seed", format!("<code>{}</code>", escape(&problem.seed))),
        ("Tuning", escape(&report.tuning)),
        ("corewire", escape(&report.version)),
        ("System", escape(&report.system)),
        ("Made", escape(&report.created)),
        ("<i>f</i>(<i>x</i><sub>0</sub>)", ten_digits(problem.initial)),
        ("<i>f</i>*", problem.optimum.map_or("not known".to_string(), ten_digits)),
    ];
    pairs.retain(|(_, value)| !value.is_empty());
    definitions("facts", &pairs)
}

fn ten_digits(value: f64) -> String {
    if !value.is_finite() {
        UNKNOWN.to_string()
    } else if value == 0.0 || (1e-3..1e6).contains(&value.abs()) {
        format!("{value:.10}")
    } else {
        format!("{value:.9e}")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::sample::{bare, hostile, many, no_target, nobody, sample, single};
    use super::*;

    const HOSTILE: &str = "</script><img src=x onerror=\"alert('1')\">{{data}}&amp;";

    /// The JSON inside the page, as a browser would cut it out.
    fn embedded(html: &str) -> Value {
        let (_, rest) =
            html.split_once("<script type=\"application/json\" id=\"data\">").expect("the page has its data");
        let (text, _) = rest.split_once("</script>").expect("the data ends");
        serde_json::from_str(text).expect("the data is JSON")
    }

    /// Equal but for the last digit, which the reader of decimal numbers may lose.
    fn same(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
            }
            (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(v, w)| same(v, w)),
            (Value::Number(a), Value::Number(b)) => {
                let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
                (a - b).abs() <= 4.0 * f64::EPSILON * a.abs()
            }
            (a, b) => a == b,
        }
    }

    #[test]
    fn every_method_is_in_the_table_and_in_the_data() {
        for report in [sample(), many()] {
            let html = render(&report);
            let data = embedded(&html);
            assert_eq!(data["runs"].as_array().unwrap().len(), report.runs.len());
            for (i, run) in report.runs.iter().enumerate() {
                assert!(html.contains(&format!("<tr data-run=\"{i}\"")), "{}", run.method);
                assert!(html.contains(&format!("data-method=\"{}\"", escape(&run.method))), "{}", run.method);
                assert_eq!(data["runs"][i]["label"], run.label.as_str());
                assert_eq!(data["runs"][i]["points"].as_array().unwrap().len(), run.trace.len());
            }
        }
    }

    #[test]
    fn hostile_text_stays_text() {
        let html = render(&hostile(HOSTILE));
        assert!(!html.contains("<img"));
        // Exactly the two script elements of the template are closed.
        assert_eq!(html.matches("</script").count(), 2);
        assert!(
            html.contains("&lt;/script&gt;&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;{{data}}&amp;amp;")
        );
        assert_eq!(embedded(&html)["runs"][0]["label"], HOSTILE);
    }

    #[test]
    fn results_survive_a_round_trip_through_json() {
        for report in [sample(), many(), single(), bare(), nobody(), no_target(), hostile(HOSTILE)] {
            let text = serde_json::to_string(&report).unwrap();
            let back: Report = serde_json::from_str(&text).unwrap();
            assert!(same(&serde_json::from_str(&text).unwrap(), &serde_json::to_value(&back).unwrap()));
        }
    }

    #[test]
    fn what_is_not_finite_is_null_and_comes_back_as_nan() {
        let mut report = bare();
        report.target = f64::NAN;
        report.problem.optimum = Some(f64::INFINITY);
        report.eigenvalues = vec![1.0, f64::NAN];
        report.runs[0].trace[0].relative = f64::NEG_INFINITY;
        let text = serde_json::to_string(&report).unwrap();
        let back: Report = serde_json::from_str(&text).unwrap();
        assert!(back.target.is_nan() && back.eigenvalues[1].is_nan() && back.runs[0].trace[0].relative.is_nan());
        assert_eq!(back.problem.optimum, None);
        let html = render(&back);
        assert!(!html.contains("NaN"), "no reader should meet a NaN");
        assert_eq!(embedded(&html)["target"], Value::Null);
    }

    #[test]
    fn the_page_asks_nothing_of_the_network() {
        // The name of SVG's namespace is no address: nobody opens it.
        let html = render(&sample()).replace("http://www.w3.org/2000/svg", "");
        for word in ["http:", "https:", "src=", "@import", "fetch(", "XMLHttpRequest"] {
            assert!(!html.contains(word), "{word}");
        }
        assert!(html.contains("default-src 'none'"));
    }

    #[test]
    fn runs_that_fell_short_say_so() {
        let html = render(&sample());
        assert!(html.contains("never reached (best "));
        assert!(html.contains(&prose(&conclusion(&sample()))));
        assert!(!render(&no_target()).contains("never reached"));
    }

    #[test]
    fn without_a_link_the_page_says_how_to_model_one() {
        let html = render(&bare());
        assert!(html.contains("No link was modelled") && !html.contains("data-plot=\"link\""));
        assert!(html.contains("The eigenvalues were not computed") && !html.contains("data-plot=\"spectrum\""));
        assert!(render(&sample()).contains("data-plot=\"link\""));
    }

    #[test]
    fn a_long_spectrum_is_thinned_with_its_ranks() {
        let eigenvalues: Vec<f64> = (1..=10_000).map(|rank| 1.0 / rank as f64).collect();
        let points = thinned(&eigenvalues);
        assert!(points.len() <= 401);
        assert_eq!((points[0].0, points.last().unwrap().0), (1, 10_000));
        assert!(points.iter().all(|&(rank, value)| value == six_digits(1.0 / rank as f64)));
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(thinned(&[]), []);
        assert_eq!(thinned(&[2.0]), [(1, Some(2.0))]);
    }

    /// The browser check opens these files; see `tests/report_browser/check.mjs`.
    #[test]
    fn samples_are_written_for_the_browser_check() {
        let Some(folder) = std::env::var_os("COREWIRE_REPORT_SAMPLES") else {
            println!("skipped: COREWIRE_REPORT_SAMPLES names no folder");
            return;
        };
        let samples = [
            ("sample", sample()),
            ("many", many()),
            ("single", single()),
            ("bare", bare()),
            ("nobody", nobody()),
            ("no-target", no_target()),
            ("hostile", hostile(HOSTILE)),
        ];
        std::fs::create_dir_all(&folder).unwrap();
        for (name, report) in samples {
            std::fs::write(Path::new(&folder).join(format!("{name}.html")), render(&report)).unwrap();
        }
    }
}
