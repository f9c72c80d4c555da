//! Every key of a job: `corewire keys`, `corewire init-job` and the tables of docs/job.md are made from this list, and a test holds it
//! to the keys that the program reads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::out;

/// A key of a job.
pub struct Key {
    name: &'static str,
    meaning: &'static str,
    default: &'static str,
    range: &'static str,
}

/// The keys of a section.
pub struct Section {
    name: &'static str,
    about: &'static str,
    keys: &'static [Key],
}

const fn key(name: &'static str, meaning: &'static str, default: &'static str, range: &'static str) -> Key {
    Key { name, meaning, default, range }
}

/// All of them, in the order of the page.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "problem",
        about: "what is solved",
        keys: &[
            key(
                "data",
                "where the rows are",
                "`\"digits\"`, bundled",
                "`\"digits\"`, `\"power-law\"`, a path (LIBSVM, IDX, CSV, the binary files of CIFAR or a folder with them; plain, gz, \
                 bz2, xz; Parquet with the feature `parquet`, folders of pictures with `pictures`), a pattern with `{machine}`, or a list with one path per machine",
            ),
            key(
                "model",
                "what is fitted",
                "`\"logistic\"`; `\"quadratic\"` for `power-law`",
                "logistic, ridge, softmax, logistic-nonconvex, two-layer; networks: mlp, lenet, resnet-small, resnet18",
            ),
            key(
                "task",
                "what labels mean",
                "binary for logistic, regression for ridge, multiclass for softmax and networks",
                "regression or binary, for ridge",
            ),
            key(
                "classes",
                "the two sides of a binary model, negative first; rows of other classes are left out",
                "`\"parity\"` for the digits, else none: the file must have two classes",
                "`\"parity\"` (even is +1, odd -1), `[3, 8]`, `[[\"no\"], [\"yes\", \"maybe\"]]`",
            ),
            key(
                "positive",
                "this class against all others",
                "none: of two classes the one that sorts last",
                "a label, as `1` or `\"yes\"`",
            ),
            key("label", "the column of CSV that is learnt", "the last", "a name, or a place counted from 1"),
            key("drop", "columns of CSV that are not read", "none", "a name or a place, or a list of them"),
            key(
                "weights",
                "the column of CSV with each row's weight; a row of weight 2 is as two rows",
                "none",
                "a name or a place",
            ),
            key(
                "class_weights",
                "how much the rows of a class count",
                "none: all alike",
                "`\"balanced\"`, or `{ yes = 5, no = 1 }`",
            ),
            key(
                "categorical",
                "columns of CSV that hold categories although they look like numbers",
                "none",
                "a name or a place, or a list of them",
            ),
            key(
                "missing",
                "what becomes of cells without a value (empty, `?`, `NA`, `nan`, `null`)",
                "`\"error\"`",
                "error, mean, indicator (the mean, and a column that says where)",
            ),
            key(
                "header",
                "whether the first line of CSV has names",
                "auto: it has where no field of it is a number",
                "true, false",
            ),
            key("zero_based", "whether the indices of LIBSVM count from 0", "false", "true, false"),
            key(
                "normalise",
                "how features are scaled",
                "`\"unit\"` for the digits, `\"standard\"` for your own files, `\"channels\"` for networks",
                "standard (mean 0 and deviation 1 over all machines; sparse columns are not shifted), channels \
                 (the same over all pixels of a channel), unit (rows of norm 1), none",
            ),
            key(
                "intercept",
                "whether a column of ones is added",
                "false for the digits, true for your own files",
                "true, false",
            ),
            key("alpha", "weight of the l2 term", "1e-3", "0 or more"),
            key("l1", "weight of the l1 term; methods without a proximal step refuse it", "0", "0 or more"),
            key(
                "lower",
                "what no coefficient falls below, the intercept among them; proximal methods only",
                "none",
                "a number",
            ),
            key("upper", "what no coefficient rises above, likewise", "none", "a number, not below `problem.lower`"),
            key("nonconvex", "weight of the regulariser of `logistic-nonconvex`", "0.1", "0 or more"),
            key("hidden", "hidden units of `two-layer` and `mlp`", "16; 32 for mlp", "1 or more"),
            key(
                "augment",
                "whether the pictures of mini-batches are cut out at random places and mirrored, for networks",
                "false",
                "true, false",
            ),
            key(
                "start",
                "tensors to begin from, for networks; `corewire export --pytorch` writes such",
                "none",
                "a path",
            ),
            key("rows", "only the first rows of a file", "all", "1 or more; not with `{machine}`"),
            key(
                "split",
                "who gets which rows of one file",
                "`\"random\"`, from the seed",
                "random, contiguous, label, dirichlet:0.5",
            ),
            key(
                "test",
                "rows that are held out",
                "none",
                "a path, which machine 0 reads, or a share of every machine's rows between 0 and 1",
            ),
            key("dim", "coordinates of `power-law`", "10000", "1 or more"),
            key("decay", "how fast its eigenvalues fall", "1.5", "0 or more"),
        ],
    },
    Section {
        name: "machines",
        about: "where",
        keys: &[
            key("count", "how many machines", "50, or as many as `problem.data` lists", "1 to 16384"),
            key(
                "data",
                "the rows, as `problem.data`; for those who keep paths out of `[problem]`",
                "none",
                "a pattern or a list; not together with `problem.data`",
            ),
            key("engine", "what carries the messages", "`\"threads\"`, all in this process", "threads, mpi"),
        ],
    },
    Section {
        name: "method",
        about: "how",
        keys: &[
            key(
                "name",
                "the method, with parameters after a colon: `ef21:k=15`",
                "`\"auto\"`",
                "`corewire methods` lists them",
            ),
            key(
                "budget",
                "m, scalars per round",
                "auto: what costs least for `method.goal`",
                "1 or more; for Hadamard at most the order of its matrix",
            ),
            key("family", "the directions", "hadamard", "gaussian, gaussian-strict, rademacher, hadamard"),
            key("block", "coordinates of a block with a sketch of its own", "none: one sketch over all", "1 or more"),
            key(
                "wire",
                "how scalars travel",
                "`\"q\"`",
                "q, q-sum, f32, bf16; f64 for uncompressed methods; gossip takes q, f32, f64",
            ),
            key(
                "step",
                "how far to step",
                "auto",
                "auto, safe, theory, line-search, option-1, option-2, theory-2, or a positive number; of networks, a rate, 0.03 where it is left out",
            ),
            key(
                "damping",
                "1 - momentum of core-agd, together with a step that is a number",
                "auto",
                "above 0, at most 1",
            ),
            key(
                "eta_up",
                "relative variance that wire q adds on the way up; in core-newton relative to the gap that the next exchange is to leave",
                "0.2; 0.05 for core-cg, 0.007 for core-newton",
                "above 0",
            ),
            key("eta_down", "the same on the way down", "0.2; 0.05 for core-cg, 0.1 for core-newton", "above 0"),
            key("memory", "directions that core-cg remembers", "d/40 on quadratics, from 5 to 20; else 3", "1 or more"),
            key("batch", "rows of a mini-batch per machine, for core-sgd and networks", "32", "1 or more"),
            key("momentum", "share of the momentum that is kept, for core-sgd and networks", "0.9", "0 to below 1"),
            key(
                "ratio",
                "coordinates of a network for each scalar of core-sgd, where no budget is given",
                "12",
                "1 or more",
            ),
            key(
                "send",
                "what machines send when a network is trained",
                "auto: momentum for core-sgd, else gradient",
                "auto, momentum, gradient",
            ),
            key("weight_decay", "decoupled weight decay of a network", "5e-4", "0 or more"),
            key("schedule", "what a network's rate does after the warm-up", "cosine", "cosine, constant"),
            key("warm_up", "share of all rounds in which a network's rate rises", "0.15", "0 to below 1"),
            key(
                "curvature",
                "whether machines may send rows of their curvature, in core-newton",
                "true",
                "true, false",
            ),
            key(
                "hessian_lipschitz",
                "Lipschitz constant of the Hessian, for option-1, option-2, theory and theory-2",
                "1",
                "above 0",
            ),
            key(
                "goal",
                "what automatic choices minimise",
                "auto: seconds where a link is named, else bytes",
                "auto, bytes, time",
            ),
            key("seed", "a public seed, for runs that can be repeated", "0", "0 or more"),
            key(
                "seed_file",
                "a secret seed, made by `corewire seed FILE`; the same file on every machine",
                "none",
                "a path",
            ),
        ],
    },
    Section {
        name: "link",
        about: "what a message costs",
        keys: &[
            key("mbit_s", "bandwidth each way", "100", "above 0"),
            key("rtt_ms", "time of a round trip", "0", "0 or more"),
            key("overhead_bytes", "headers that each message costs beside what is counted", "66", "0 or more"),
        ],
    },
    Section {
        name: "stop",
        about: "until when",
        keys: &[
            key("rounds", "rounds at most", "5000; 2000 for `compare`", "0 or more"),
            key(
                "epochs",
                "passes over all rows, for networks, in place of rounds",
                "10",
                "above 0; not with `{machine}`",
            ),
            key(
                "target",
                "relative suboptimality (f - f*)/(f0 - f*); 0 switches every default criterion off",
                "1e-6 where one process has all rows",
                "0 or more; not with `{machine}`",
            ),
            key("gradient", "the free estimate of the gradient's norm", "none", "above 0"),
            key("gradient_relative", "the same relative to the first round's", "1e-4 with `{machine}`", "above 0"),
            key(
                "gap",
                "an estimate of f - f* relative to the first, by methods that have one",
                "4e-7 with core-newton where f* is not known",
                "above 0",
            ),
            key("gap_absolute", "the same as it is, in the units of f", "none", "above 0; not with `stop.gap`"),
            key(
                "patience",
                "evaluations on held-out rows without a better loss",
                "none",
                "1 or more; needs `problem.test`",
            ),
            key(
                "evaluate_every",
                "rounds between evaluations of f and of the held-out rows",
                "every round where that is free; never where it would have to travel, but every round with `stop.patience`",
                "1 or more",
            ),
            key("seconds", "seconds by machine 0's clock", "none", "above 0"),
            key("bytes", "bytes on the wire per machine, both ways, everything included", "none", "1 or more"),
        ],
    },
    Section {
        name: "limits",
        about: "what may be used up",
        keys: &[
            key("wait_seconds", "how long machines wait for each other", "3600", "0 or more; 0 waits for ever"),
            key(
                "on_late",
                "what becomes of a run whose machine is late by then: it ends, or waits on; who is late is named either way",
                "`\"end\"`",
                "end, wait",
            ),
            key(
                "memory",
                "bytes that rows, machines and hub may take; what would need more is refused before it is allocated",
                "half of what this computer, its container and `ulimit -v` allow",
                "1 or more",
            ),
            key(
                "optimum_seconds",
                "how long f* may be computed; a run that does not know it ends by estimates of the gap or the gradient, as sites do",
                "30; no end for `compare`",
                "0 or more; 0 does without f*",
            ),
        ],
    },
    Section {
        name: "graph",
        about: "machines without a centre",
        keys: &[
            key(
                "shape",
                "who talks to whom",
                "`\"none\"`: a hub",
                "none, ring, path, grid, torus, star, complete, hypercube, regular, erdos-renyi, file",
            ),
            key("file", "an edge list, two machines per line, for shape `file`", "none", "a path"),
            key("degree", "degree of shape `regular`", "4", "1 or more"),
            key("probability", "probability of an edge of `erdos-renyi`", "0.2", "above 0, at most 1"),
            key("gossip", "how machines come to a common number", "`\"tree\"`", "tree, chebyshev, plain"),
            key("iterations", "iterations of gossip per round", "what the tolerance needs", "1 or more"),
            key("tolerance", "what gossip must reach", "1e-8", "between 0 and 1"),
        ],
    },
];

/// Arguments of `corewire keys`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only keys that contain this, as in `stop` or `problem.data`.
    part: Option<String>,
    /// The tables of docs/job.md.
    #[arg(long)]
    markdown: bool,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// `corewire keys`.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.markdown {
        return out::line(SECTIONS.iter().map(Section::to_markdown).collect::<Vec<_>>().join("\n\n").trim_end());
    }
    let part = arguments.part.as_deref().unwrap_or_default();
    let all = SECTIONS.iter().flat_map(|section| section.keys.iter().map(move |key| (section.full_name(key), key)));
    let wanted: Vec<(String, &Key)> = all.filter(|(name, _)| name.contains(part)).collect();
    if wanted.is_empty() {
        bail!("no key contains `{part}`; `corewire keys` lists all");
    }
    for (name, Key { meaning, default, range, .. }) in wanted {
        match arguments.json {
            true => out::json(&json!({ "key": name, "meaning": meaning, "default": default, "range": range }))?,
            false => out::line(&format!("{name}: {meaning}\n    default {default}; {range}"))?,
        }
    }
    Ok(())
}

impl Section {
    fn full_name(&self, key: &Key) -> String {
        format!("{}.{}", self.name, key.name)
    }

    fn to_markdown(&self) -> String {
        let row = |key: &Key| {
            let name = self.full_name(key);
            format!("| `{name}` | {} | {} | {} |", key.meaning, key.default, key.range)
        };
        let rows: Vec<String> = self.keys.iter().map(row).collect();
        format!("| key | meaning | default | range |\n| --- | --- | --- | --- |\n{}", rows.join("\n"))
    }
}

/// `corewire init-job`: a file with every key as a comment, and the few that most people set.
pub fn init(path: &Path, data: Option<&str>, json: bool) -> Result<()> {
    if path.exists() {
        bail!("{} exists: name another file", path.display());
    }
    std::fs::write(path, job_text(data)).with_context(|| format!("cannot write {}", path.display()))?;
    match json {
        true => out::json(&json!({ "file": path })),
        false => out::line(&format!("{} is a job: `corewire run {}`", path.display(), path.display())),
    }
}

fn job_text(data: Option<&str>) -> String {
    let mut text = "# A job of corewire. Every key is here; those behind a # have their defaults.\n".to_owned();
    for section in SECTIONS {
        text += &format!("\n# {}\n[{}]\n", section.about, section.name);
        for key in section.keys {
            text += &format!("# {}: {}\n#   default {}; {}\n", key.name, key.meaning, key.default, key.range);
            if let (Some(data), "problem", "data") = (data, section.name, key.name) {
                text += &format!("data = {}\n", toml::Value::String(data.to_owned()));
            }
        }
    }
    text
}

/// Arguments of `corewire init-job`.
#[derive(clap::Args)]
pub struct InitArguments {
    /// The new file.
    #[arg(default_value = "job.toml")]
    pub file: PathBuf,
    /// The rows, as `problem.data`.
    #[arg(long, value_name = "PATH")]
    pub data: Option<String>,
    /// One JSON object at the end.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job;

    #[test]
    fn the_list_has_every_key_that_the_program_reads_and_no_other() {
        let mut told: Vec<String> =
            SECTIONS.iter().flat_map(|section| section.keys.iter().map(|key| section.full_name(key))).collect();
        told.sort();
        assert_eq!(told, job::known_keys());
    }

    #[test]
    fn the_tables_of_the_page_are_made_from_the_list() {
        let page = include_str!("../../../docs/job.md");
        for section in SECTIONS {
            let heading = format!("## `[{}]`: {}", section.name, section.about);
            assert!(page.contains(&heading), "docs/job.md lacks the heading {heading}");
            let table = section.to_markdown();
            assert!(page.contains(&table), "docs/job.md wants this table (`corewire keys --markdown`):\n{table}");
        }
    }

    #[test]
    fn a_commented_job_is_the_bundled_one_until_something_is_said() {
        let job = job::from_text(&job_text(None), Path::new(""), &[]).unwrap();
        assert_eq!(job.problem.data, job::DataSource::Digits);
        let own = job::from_text(&job_text(Some("rows \"here\".csv")), Path::new(""), &[]).unwrap();
        assert_eq!(own.problem.data.name(), "rows \"here\".csv");
    }
}
