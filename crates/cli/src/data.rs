//! `corewire data`: what can be had, fetching it, dividing and converting it.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corewire_comm::group::MOST_MACHINES;
use corewire_data::shard::{self, Split};
use corewire_data::{ColumnOptions, ColumnRef, CsvLines, DataSet, ReadOptions, known_sets, load};
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
    /// Cut a data set into one file per machine: CSV as it is, anything else as LIBSVM.
    #[command(after_help = "Example:\n  corewire data shard digits --machines 8 --split label --out shards")]
    Shard {
        /// `digits` or a file.
        data: String,
        /// The label's column in CSV, by name or by its place counted from 1; the last without a word.
        #[arg(long, value_name = "COLUMN")]
        label: Option<String>,
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
    Ok(load(Path::new(data), &memory::read_options(&ReadOptions::default(), memory::share()))?)
}

/// What is cut into shards: rows of numbers, or lines of CSV, which stay as they are: what becomes of words is for the job to say.
enum Whole {
    Rows(DataSet),
    Lines(CsvLines),
}

impl Whole {
    fn open(data: &str, label: Option<&str>) -> Result<Self> {
        if data == "digits" {
            return Ok(Self::Rows(corewire_data::digits()));
        }
        let label = label.map(|label| match label.parse() {
            Ok(place) => ColumnRef::Place(place),
            Err(_) => ColumnRef::Name(label.to_owned()),
        });
        let columns = ColumnOptions { label, ..ColumnOptions::default() };
        let options = ReadOptions { columns, ..ReadOptions::default() };
        let options = memory::read_options(&options, memory::share());
        Ok(match corewire_data::csv_lines(Path::new(data), &options)? {
            Some(lines) => Self::Lines(lines),
            None => Self::Rows(load(Path::new(data), &options)?),
        })
    }

    fn labels(&self) -> &[f64] {
        match self {
            Self::Rows(set) => &set.labels,
            Self::Lines(lines) => &lines.labels,
        }
    }

    fn ending(&self) -> &'static str {
        match self {
            Self::Rows(_) => "libsvm",
            Self::Lines(_) => "csv",
        }
    }

    /// The file of these rows, and a digest of it.
    fn shard(&self, rows: &[usize]) -> Result<(Vec<u8>, String)> {
        match self {
            Self::Rows(set) => {
                let mut text = Vec::new();
                corewire_data::write_libsvm(&set.select(rows), &mut text)?;
                Ok((text, rows_digest(set, rows.iter().copied())))
            }
            Self::Lines(lines) => {
                let text = lines.select(rows);
                let digest = blake3::hash(&text).to_hex()[..16].to_owned();
                Ok((text, digest))
            }
        }
    }
}

/// `corewire data`.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::List { json } => list(*json),
        Command::Fetch { name, into, from, json } => fetch(name, into.as_deref(), from.as_deref(), *json),
        Command::Shard { data, label, machines, split, out, seed, json } => {
            if !(1..=MOST_MACHINES).contains(machines) {
                bail!("`--machines` is from 1 to {MOST_MACHINES}; found {machines}");
            }
            let whole = Whole::open(data, label.as_deref())?;
            std::fs::create_dir_all(out).with_context(|| format!("cannot create the folder {}", out.display()))?;
            let mut words = CommonRandomness::new(&Seed::reproducible(*seed)).words(Purpose::Shuffle, u64::MAX, 0);
            let shards = shard::shards(whole.labels(), *machines, *split, || words.next_u64());
            let (count, ending) = (whole.labels().len(), whole.ending());
            let mut files = Vec::new();
            for (rank, rows) in shards.iter().enumerate() {
                let file = format!("{rank}.{ending}");
                let (text, digest) = whole.shard(rows)?;
                let path = out.join(&file);
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
                files.push(serde_json::json!({ "file": file, "rows": rows.len(), "digest": digest }));
            }
            let name = Path::new(data).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let manifest = serde_json::json!({
                "data": name, "rows": count, "machines": machines,
                "split": split.to_string(), "seed": seed, "shards": files,
            });
            let path = out.join("manifest.json");
            std::fs::write(&path, format!("{manifest:#}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
            let sizes: Vec<usize> = shards.iter().map(Vec::len).collect();
            let (least, most) = (sizes.iter().min().unwrap_or(&0), sizes.iter().max().unwrap_or(&0));
            match json {
                true => println!("{}", serde_json::json!({ "machines": machines, "rows": sizes, "folder": out })),
                false => {
                    println!("{count} rows on {machines} machines, {least} to {most} each, in {}", out.display());
                    println!(
                        "train on them with --set 'problem.data={}/{{machine}}.{ending}' --set machines.count={machines}",
                        out.display()
                    );
                }
            }
            Ok(())
        }
        Command::Convert { data, output, json } => {
            check_output(output)?;
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

/// Refuses a format that cannot be written, before anything is read.
fn check_output(path: &Path) -> Result<()> {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().to_lowercase());
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        None | Some("csv" | "libsvm" | "svm" | "svmlight" | "txt") => Ok(()),
        Some(ending) => bail!("`.{ending}` cannot be written: name the output FILE.csv or FILE.libsvm"),
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
