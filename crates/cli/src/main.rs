//! The binary `corewire`: arguments become typed values, one library call does the work, people read the result.

mod assemble;
mod desk;
mod job;
mod run;
mod summary;
mod units;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Distributed optimisation that sends m numbers a round instead of d.
#[derive(Parser)]
#[command(name = "corewire", version, about, long_about = None)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model on n machines with one method.
    #[command(after_help = "Examples:\n  corewire run                                  # bundled data, 50 machines, logistic regression\n  corewire run job.toml --out runs/first        # with a journal that can be resumed and replayed\n  corewire run --set method.name=core-agd --set method.wire=f32\n  corewire run --resume runs/first")]
    Run(run::Arguments),
    /// Rebuild the model of a run from its journal, without data.
    #[command(after_help = "Example:\n  corewire replay runs/first --to 100 --out model.safetensors")]
    Replay {
        /// The folder of the run.
        folder: PathBuf,
        /// After this many rounds; all by default.
        #[arg(long)]
        to: Option<u64>,
        /// Where the model goes.
        #[arg(long, default_value = "model.safetensors")]
        out: PathBuf,
        /// One JSON object at the end.
        #[arg(long)]
        json: bool,
    },
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
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Replay { folder, to, out, json } => run::replay(&folder, to, &out, json),
        Command::Journal { command: JournalCommand::Verify { folder, json } } => run::verify(&folder, json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corewire: {error:#}");
            ExitCode::FAILURE
        }
    }
}
