//! The binary `corewire`: arguments become typed values, one library call does the work, people read the result.

#[macro_use]
mod out;

mod bench;
mod cache;
mod choose;
mod compare;
mod curvature;
mod data;
mod earlier;
mod evaluate;
mod export;
mod graph;
mod header;
mod inspect;
mod interrupt;
mod job;
mod keys;
mod memory;
mod model;
mod onnx;
mod path;
mod plot;
mod privacy;
mod progress;
mod recorder;
mod replay;
mod report;
mod rows;
mod run;
mod run_folder;
mod secrecy;
mod session;
mod summary;
mod tensorboard;
mod units;
mod worth;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Distributed optimisation that sends m numbers per round instead of d.
#[derive(Parser)]
#[command(name = "corewire", version, about, long_about = None)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model on n machines with one method.
    #[command(
        after_help = "Examples:\n  corewire run                                  # bundled data, 50 machines, logistic regression\n\
                      \x20 corewire run job.toml --out runs/first        # with a journal that can be resumed and replayed\n  corewire run --set method.name=core-agd --set method.wire=f32\n  corewire run --resume runs/first"
    )]
    Run(run::Arguments),
    /// Rebuild the model of a run from its journal, without data.
    #[command(after_help = "Example:\n  corewire replay runs/first --to 100 --out model.safetensors")]
    Replay {
        /// The folder of the run.
        folder: PathBuf,
        /// After this many rounds; all by default.
        #[arg(long)]
        to: Option<u64>,
        /// The model or the tensors that the network began from, where its folder has lost start.safetensors.
        #[arg(long, value_name = "FILE")]
        start: Option<PathBuf>,
        /// Where the model goes.
        #[arg(long, default_value = "model.safetensors")]
        out: PathBuf,
        /// One JSON object at the end.
        #[arg(long)]
        json: bool,
    },
    /// How well a model does on rows of data.
    #[command(after_help = "Example:\n  corewire evaluate --model runs/first/model.safetensors digits")]
    Evaluate(evaluate::Arguments),
    /// What a model says of rows of data, one line each.
    #[command(after_help = "Example:\n  corewire predict --model runs/first/model.safetensors digits")]
    Predict(evaluate::Arguments),
    /// Write a model for other programs: a linear one as JSON with scikit-learn's names and as ONNX, a network as PyTorch's tensors.
    #[command(
        after_help = "Example:\n  corewire export runs/first/model.safetensors --sklearn model.json --onnx model.onnx"
    )]
    Export(export::Arguments),
    /// Measure a problem: does compression help, with which budget, on which link?
    #[command(after_help = "Example:\n  corewire inspect job.toml --mbit-s 10 --rtt-ms 40")]
    Inspect(inspect::Arguments),
    /// Train with several penalties, each from where the last ended, and choose by held-out rows.
    #[command(after_help = "Example:\n  corewire path job.toml --alphas 1,0.1,0.01,1e-3 --out runs/best")]
    Path(path::Arguments),
    /// Run many methods on the same problem and show loss against real bytes, as a table, CSV and an HTML report.
    #[command(after_help = "Examples:\n  \
        corewire compare                              # 19 methods on the bundled data\n  \
        corewire compare job.toml --methods core-cg,cg,ef21:k=15 --out results")]
    Compare(compare::Arguments),
    /// Rebuild the HTML report of a comparison from its results.
    #[command(after_help = "Example:\n  corewire report corewire-compare")]
    Report {
        /// The folder of the comparison.
        folder: PathBuf,
        /// One JSON object at the end.
        #[arg(long)]
        json: bool,
    },
    /// Every key of a job: meaning, default, range.
    #[command(after_help = "Examples:\n  corewire keys\n  corewire keys stop")]
    Keys(keys::Arguments),
    /// Write a job file with every key as a comment.
    #[command(name = "init-job", after_help = "Example:\n  corewire init-job churn.toml --data churn.csv")]
    InitJob(keys::InitArguments),
    /// All methods and their parameters.
    Methods {
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Time the sketch on this machine.
    #[command(after_help = "Example:\n  corewire bench --family gaussian --dim 1048576 --budget 256 --threads 1")]
    Bench(bench::Arguments),
    /// Data sets: list, fetch, shard, convert.
    Data {
        #[command(subcommand)]
        command: data::Command,
    },
    /// What an observer of the messages learns, exactly.
    #[command(after_help = "Example:\n  corewire privacy --adjacency 0.01 --delta 1e-5 --budget 10 --rounds 100")]
    Privacy(privacy::Arguments),
    /// Make a secret seed, in a file that only you can read.
    #[command(after_help = "Example:\n  corewire seed seed.txt")]
    Seed {
        /// The new file.
        file: PathBuf,
        /// One JSON object at the end.
        #[arg(long)]
        json: bool,
    },
    /// What a graph of machines without a centre costs.
    #[command(after_help = "Example:\n  corewire graph grid --machines 64 --plot grid.svg")]
    Graph(graph::Arguments),
    /// Check a journal.
    #[command(after_help = "Example:\n  corewire journal verify runs/first")]
    Journal {
        #[command(subcommand)]
        command: JournalCommand,
    },
}

#[derive(Subcommand)]
enum JournalCommand {
    /// Check every record, the chain and the snapshots.
    Verify {
        /// The folder of the run.
        folder: PathBuf,
        /// One JSON object at the end.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help is no error; words that are not understood end with 1, since 2 says that a target was missed.
            let told = error.print();
            return if error.use_stderr() || told.is_err() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    // Sketches share a pool of threads, which would panic on its own where the system gives none.
    if let Err(error) = rayon::ThreadPoolBuilder::new().build_global() {
        eprintln!(
            "corewire: the system gives this process no threads ({error}); raise its limits, `ulimit -u` among them"
        );
        return ExitCode::FAILURE;
    }
    // A download's error shows checksums, which look like seeds.
    let shows_digits = matches!(arguments.command, Command::Data { .. });
    let done = match arguments.command {
        Command::Run(arguments) => match run::run(&arguments) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Replay { folder, to, start, out, json } => replay::replay(&folder, to, start.as_deref(), &out, json),
        Command::Evaluate(arguments) => evaluate::evaluate(&arguments),
        Command::Predict(arguments) => evaluate::predict(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Path(arguments) => path::run(&arguments),
        Command::Compare(arguments) => match compare::run(&arguments) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Report { folder, json } => compare::rebuild(&folder, json),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::InitJob(arguments) => keys::init(&arguments.file, arguments.data.as_deref(), arguments.json),
        Command::Methods { json } => compare::list(json),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Data { command } => data::run(&command),
        Command::Privacy(arguments) => privacy::run(&arguments),
        Command::Seed { file, json } => privacy::create_seed(&file, json),
        Command::Graph(arguments) => graph::run(&arguments),
        Command::Journal { command: JournalCommand::Verify { folder, json } } => replay::verify(&folder, json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let words = format!("corewire: {error:#}");
            eprintln!("{}", if shows_digits { words } else { secrecy::without_seeds(&words) });
            ExitCode::FAILURE
        }
    }
}
