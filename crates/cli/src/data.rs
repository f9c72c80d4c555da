//! `corewire data`: what can be had, fetching it, dividing and converting it.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corewire_comm::group::MOST_MACHINES;
use corewire_data::shard::{self, Split};
use corewire_data::{DataSet, known_sets, load};
use corewire_optim::problem::rows_digest;
use corewire_sketch::{CommonRandomness, Purpose, Seed};

use crate::{cache, memory};

/// Commands of `corewire data`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// What is bundled, what can be made, what can be fetched.
    List {
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Fetch a data set into the cache, check it, and say where it is.
    #[command(after_help = "Example:\n  corewire data fetch a9a")]
    Fetch {
        /// Its name, as `corewire data list` shows it.
        name: String,
        /// Another folder than the cache.
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
        /// A mirror: the folder's address, instead of the one that the list knows.
        #[arg(long, value_name = "URL")]
        from: Option<String>,
        /// One JSON object at the end.
        #[arg(long)]
        json: bool,
    },
    /// Cut a data set into one LIBSVM file per machine.
    #[command(after_help = "Example:\n  corewire data shard digits --machines 8 --split label --out shards")]
    Shard {
        /// `digits` or a file.
        data: String,
        /// How many machines.
        #[arg(long, default_value_t = 8)]
        machines: usize,
        /// random, contiguous, label, or dirichlet:0.5.
        #[arg(long, default_value = "random")]
        split: Split,
        /// The folder of the files.
        #[arg(long, value_name = "DIR", default_value = "shards")]
        out: PathBuf,
        /// The seed of a random split.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// One JSON object at the end.
        #[arg(long)]
        json: bool,
    },
    /// Write a data set as LIBSVM or CSV, by the ending of the output.
    #[command(after_help = "Example:\n  corewire data convert digits digits.csv")]
    Convert {
        /// `digits` or a file.
        data: String,
        /// FILE.csv, else LIBSVM text.
        output: PathBuf,
        /// One JSON object at the end.
        #[arg(long)]
        json: bool,
    },
}

fn open(data: &str) -> Result<DataSet> {
    if data == "digits" {
        return Ok(corewire_data::digits());
    }
    Ok(load(Path::new(data), &memory::read_options(memory::share()))?)
}

/// `corewire data`.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::List { json } => list(*json),
        Command::Fetch { name, into, from, json } => fetch(name, into.as_deref(), from.as_deref(), *json),
        Command::Shard { data, machines, split, out, seed, json } => {
            let set = open(data)?;
            if !(1..=MOST_MACHINES).contains(machines) {
                bail!("`--machines` is from 1 to {MOST_MACHINES}; found {machines}");
            }
            std::fs::create_dir_all(out).with_context(|| format!("cannot create the folder {}", out.display()))?;
            let mut words = CommonRandomness::new(&Seed::reproducible(*seed)).words(Purpose::Shuffle, u64::MAX, 0);
            let shards = shard::shards(&set.labels, *machines, *split, || words.next_u64());
            for (rank, rows) in shards.iter().enumerate() {
                write(&set.select(rows), &out.join(format!("{rank}.libsvm")))?;
            }
            let manifest = serde_json::json!({
                "data": set.name, "rows": set.rows(), "columns": set.dim(), "machines": machines,
                "split": split.to_string(), "seed": seed,
                "shards": shards.iter().enumerate().map(|(rank, rows)| serde_json::json!({
                    "file": format!("{rank}.libsvm"), "rows": rows.len(),
                    "digest": rows_digest(&set, rows.iter().copied()),
                })).collect::<Vec<_>>(),
            });
            let path = out.join("manifest.json");
            std::fs::write(&path, format!("{manifest:#}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
            let sizes: Vec<usize> = shards.iter().map(Vec::len).collect();
            let (least, most) = (sizes.iter().min().unwrap_or(&0), sizes.iter().max().unwrap_or(&0));
            match json {
                true => println!("{}", serde_json::json!({ "machines": machines, "rows": sizes, "folder": out })),
                false => {
                    println!(
                        "{} rows on {machines} machines, {least} to {most} each, in {}",
                        set.rows(),
                        out.display()
                    );
                    println!(
                        "train on them with --set 'problem.data={}/{{machine}}.libsvm' --set machines.count={machines}",
                        out.display()
                    );
                }
            }
            Ok(())
        }
        Command::Convert { data, output, json } => {
            let set = open(data)?;
            write(&set, output)?;
            match json {
                true => println!("{}", serde_json::json!({ "rows": set.rows(), "dim": set.dim(), "file": output })),
                false => println!("{} rows of {} columns in {}", set.rows(), set.dim(), output.display()),
            }
            Ok(())
        }
    }
}

fn write(set: &DataSet, path: &Path) -> Result<()> {
    let mut out = BufWriter::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?);
    match path.extension().is_some_and(|ending| ending == "csv") {
        true => corewire_data::write_csv(set, &mut out),
        false => corewire_data::write_libsvm(set, &mut out),
    }
    .with_context(|| format!("cannot write {}", path.display()))
}

fn list(json: bool) -> Result<()> {
    let cache = cache::folder().map(|cache| cache.join("data"));
    let is_here = |name: &str| cache.as_ref().is_some_and(|cache| cache.join(name).exists());
    if json {
        println!(
            "{}",
            serde_json::json!({ "name": "digits", "rows": 1797, "dim": 64, "classes": 10, "where": "bundled" })
        );
        println!("{}", serde_json::json!({ "name": "power-law", "where": "synthetic" }));
        for set in known_sets() {
            let place = if is_here(set.files[0].name) { "cache" } else { "network" };
            println!(
                "{}",
                serde_json::json!({ "name": set.name, "rows": set.rows, "dim": set.dim, "classes": set.classes, "where": place })
            );
        }
        return Ok(());
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["name", "rows", "columns", "classes", "where"]);
    table.add_row(["digits", "1797", "64", "10", "bundled"]);
    table.add_row(["power-law", "-", "problem.dim", "-", "synthetic"]);
    for set in known_sets() {
        let place = if is_here(set.files[0].name) {
            "in the cache".to_owned()
        } else {
            format!("corewire data fetch {}", set.name)
        };
        table.add_row([set.name.to_owned(), set.rows.to_string(), set.dim.to_string(), set.classes.to_string(), place]);
    }
    println!("{table}");
    Ok(())
}

#[cfg(not(feature = "fetch"))]
fn fetch(_: &str, _: Option<&Path>, _: Option<&str>, _: bool) -> Result<()> {
    bail!("this corewire was built without downloads; build it with `--features fetch`")
}

#[cfg(feature = "fetch")]
fn fetch(name: &str, into: Option<&Path>, from: Option<&str>, json: bool) -> Result<()> {
    use std::io::IsTerminal;

    use anyhow::anyhow;
    use corewire_data::fetch::{Downloader, Network};
    use corewire_data::known_set;
    use corewire_optim::catalogue::nearest;
    use indicatif::{ProgressBar, ProgressStyle};

    let set = known_set(name).ok_or_else(|| {
        let nearest = nearest(name, known_sets().iter().map(|set| set.name));
        anyhow!("there is no known data set `{name}`; did you mean `{nearest}`? `corewire data list` shows all")
    })?;
    let folder = match into {
        Some(folder) => folder.to_owned(),
        None => cache::folder()
            .map(|cache| cache.join("data"))
            .ok_or_else(|| anyhow!("no cache folder is known; name one by --into"))?,
    };
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let network = Network {
        proxy: variable("https_proxy")
            .or_else(|| variable("HTTPS_PROXY"))
            .filter(|_| from.is_none_or(|from| from.starts_with("https"))),
        certificates: variable("SSL_CERT_FILE").map(PathBuf::from),
    };
    let downloader = Downloader::new(&network)?;
    let bar = std::io::stderr().is_terminal().then(|| {
        let style =
            ProgressStyle::with_template("{msg} {bytes} of {total_bytes} {wide_bar} {eta}").expect("a valid template");
        ProgressBar::new(0).with_style(style)
    });
    let mut progress = |progress: corewire_data::fetch::Progress<'_>| {
        if let Some(bar) = &bar {
            bar.set_message(progress.file.to_owned());
            bar.set_length(progress.total_bytes.unwrap_or(0));
            bar.set_position(progress.received_bytes);
        }
    };
    for file in set.files {
        let url = match from {
            Some(from) => format!("{}/{}", from.trim_end_matches('/'), file.name),
            None => file.url(),
        };
        downloader.download(&url, file.sha256, &folder.join(file.name), &mut progress)?;
    }
    let path = folder.join(set.files[0].name);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let size = std::fs::metadata(&path).map_or(0, |about| about.len());
    match json {
        true => println!("{}", serde_json::json!({ "name": set.name, "file": path, "bytes": size })),
        false => {
            println!(
                "{} is here, {}: set problem.data to \"{}\"",
                set.name,
                crate::units::bytes(size as f64),
                path.display()
            )
        }
    }
    Ok(())
}
