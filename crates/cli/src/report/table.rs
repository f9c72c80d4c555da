//! The table of runs as HTML, best first. Sorting it otherwise is the page's own doing, by the `data-v` of each cell.

use super::conclusion::Standing;
use super::{Report, RunInfo, escape};
use crate::units::{bytes, count, scientific, seconds, significant, times};

/// The whole table.
pub(super) fn table(report: &Report) -> String {
    let columns: Vec<Column> = columns(report);
    let order = report.ranking();
    // Without a target the rows come by what each run reached, which is the last column.
    let sorted = match (report.has_target(), &report.link) {
        (true, Some(_)) => "link",
        (true, None) => "total",
        (false, _) => "best",
    };
    let heads: String = columns
        .iter()
        .map(|column| {
            let aria = if column.key == sorted { "ascending" } else { "none" };
            format!(
                "<th scope=\"col\" data-key=\"{}\" aria-sort=\"{aria}\"><button type=\"button\" title=\"{}\">{}</button></th>",
                column.key, column.hint, column.head
            )
        })
        .collect();
    let rows: String = order.iter().enumerate().map(|(rank, &i)| row(report, &columns, rank, i)).collect();
    format!("<table id=\"runs\"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>")
}

/// A column of numbers, or the first one with the names.
struct Column {
    key: &'static str,
    head: &'static str,
    hint: &'static str,
    cell: fn(&Report, &RunInfo) -> Cell,
}

/// What a cell shows and by what it is sorted; without a value it stays at the end either way.
struct Cell {
    html: String,
    value: Option<f64>,
}

impl Cell {
    fn number(value: f64, write: fn(f64) -> String) -> Cell {
        Cell { html: write(value), value: value.is_finite().then_some(value) }
    }
}

fn columns(report: &Report) -> Vec<Column> {
    let column = |key, head, hint, cell| Column { key, head, hint, cell };
    let total = if report.has_target() { "Bytes to target" } else { "Total bytes" };
    let mut columns = vec![
        column("method", "Method", "Sort by name", |_, run| Cell { html: name(run), value: None }),
        column("total", total, "All that passed on the wire, both ways, per machine", total_cell),
    ];
    if report.has_target() {
        columns.push(column("ratio", "× best", "Relative to the best method", ratio_cell));
    }
    columns.extend([
        column("rounds", "Rounds", "Iterations of the method", |_, run| Cell {
            html: count(run.rounds),
            value: Some(run.rounds as f64),
        }),
        column("trips", "Exchanges", "Message exchanges, set-up included", |_, run| Cell {
            html: count(run.trips),
            value: Some(run.trips as f64),
        }),
        column("up", "Up", "Payload that a machine sent, on average", |_, run| Cell::number(run.up_bytes, bytes)),
        column("down", "Down", "Payload that a machine received, on average", |_, run| {
            Cell::number(run.down_bytes, bytes)
        }),
        column("seconds", "Time here", "Time this run took on this computer", |_, run| {
            Cell::number(run.seconds, seconds)
        }),
    ]);
    if report.link.is_some() {
        // What counts stands first.
        let link = column("link", "On the link", "Time it would take on the modelled link", |report, run| {
            cost_cell(report, run, run.link_seconds.unwrap_or(f64::NAN), seconds)
        });
        columns.insert(1, link);
    }
    if report.runs.iter().any(|run| run.score.is_some()) {
        columns.push(column("score", "Held-out score", "Accuracy, or R2, on held-out rows at the end", |_, run| {
            Cell::number(run.score.unwrap_or(f64::NAN), significant)
        }));
    }
    let [last, least] = match report.problem.rounds_per_epoch {
        Some(_) => ["Loss after the last round, as a share of the first", "Least loss seen, as a share of the first"],
        None => ["Relative suboptimality after the last round", "Least relative suboptimality seen"],
    };
    columns.push(column("final", "At the end", last, |_, run| Cell::number(run.relative, scientific)));
    if !report.has_target() {
        // With one, who reached it ended at its best, and the others say theirs where the bytes would stand.
        columns.push(column("best", "Best seen", least, |_, run| Cell::number(run.best, scientific)));
    }
    columns
}

fn row(report: &Report, columns: &[Column], rank: usize, i: usize) -> String {
    let run = &report.runs[i];
    let standing = match run.standing() {
        Standing::Reached => "reached",
        // Without a target nobody falls short of it.
        Standing::Short if !report.has_target() => "ran",
        Standing::Short => "short",
        Standing::Failed => "failed",
    };
    let core = if run.is_core() { " core" } else { "" };
    let cells: String = columns
        .iter()
        .map(|column| {
            let cell = (column.cell)(report, run);
            if column.key == "method" {
                return format!("<th scope=\"row\" data-v=\"{}\">{}</th>", escape(&run.label), cell.html);
            }
            let value = cell.value.map_or(String::new(), |value| format!("{value:e}"));
            format!("<td data-key=\"{}\" data-v=\"{value}\">{}</td>", column.key, cell.html)
        })
        .collect();
    let method = escape(&run.method);
    format!(
        "<tr data-run=\"{i}\" data-method=\"{method}\" data-rank=\"{rank}\" class=\"{standing}{core}\">{cells}</tr>"
    )
}

fn name(run: &RunInfo) -> String {
    let mut html = format!("<span class=\"name\"><span class=\"swatch\"></span>{}</span>", escape(&run.label));
    if !run.method.eq_ignore_ascii_case(&run.label) {
        html += &format!("<code>{}</code>", escape(&run.method));
    }
    for (class, prefix, text) in
        [("note", "tuned: ", &run.tuned), ("note", "", &run.note), ("error", "error: ", &run.error)]
    {
        if let Some(text) = text {
            html += &format!("<span class=\"{class}\">{prefix}{}</span>", escape(text));
        }
    }
    html
}

fn total_cell(report: &Report, run: &RunInfo) -> Cell {
    match (report.link.is_some(), run.standing()) {
        // The first column has said who never got there.
        (true, Standing::Short) => Cell::number(run.wire_bytes, bytes),
        _ => cost_cell(report, run, run.wire_bytes, bytes),
    }
}

fn cost_cell(report: &Report, run: &RunInfo, cost: f64, write: fn(f64) -> String) -> Cell {
    match run.standing() {
        Standing::Reached => Cell::number(cost, write),
        Standing::Short if !report.has_target() => Cell::number(cost, write),
        Standing::Short => {
            let best = if run.best.is_finite() { format!(" (best {})", scientific(run.best)) } else { String::new() };
            Cell { html: format!("<span class=\"never\">never reached{best}</span>"), value: None }
        }
        Standing::Failed => {
            Cell { html: "<span class=\"never\">stopped with an error</span>".to_string(), value: None }
        }
    }
}

fn ratio_cell(report: &Report, run: &RunInfo) -> Cell {
    match report.least_cost() {
        Some(least) if run.standing() == Standing::Reached => Cell::number(report.cost(run) / least, times),
        _ => Cell { html: super::UNKNOWN.to_string(), value: None },
    }
}
