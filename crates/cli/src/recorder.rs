//! Machine 0's observer during a run: progress, the folder of the run, the wish to stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use corewire_journal::{About, JournalError, Snapshot};
use corewire_optim::RunError;
use corewire_optim::method::Settings;
use corewire_optim::objective::Objective;
use corewire_optim::run::{Observer, Record};
use indicatif::ProgressBar;

use crate::interrupt::{interrupted, rounds_begin};
use crate::run_folder::RunFolder;
use crate::tensorboard::Board;
use crate::{progress, units};

/// What machine 0 keeps of a run.
pub struct Recorder {
    bar: Option<ProgressBar>,
    folder: Option<RunFolder>,
    board: Option<Board>,
    /// All rows, for f where the machines are on several processes.
    pooled: Option<Box<dyn Objective>>,
    begun: Instant,
    target: Option<f64>,
    /// Every record, for plots and reports.
    pub records: Vec<Record>,
    keep: bool,
    /// Whether a signal ends the run after its round, and not at once.
    stoppable: bool,
}

impl Recorder {
    /// A recorder; a bar is shown only on a terminal.
    pub fn new(quiet: bool, rounds: u64, target: Option<f64>) -> Self {
        let steps = if target.is_some() { 1000 } else { rounds };
        let bar = progress::bar(quiet, steps, "{msg}\n{wide_bar:.cyan/dim} {eta} left");
        let (folder, board, pooled) = (None, None, None);
        let (begun, records) = (Instant::now(), Vec::new());
        Self { bar, folder, board, pooled, begun, target, records, keep: false, stoppable: true }
    }

    /// One that says nothing and keeps nothing.
    pub fn unseen() -> Self {
        Self::new(true, 0, None)
    }

    /// The same, of a run that a signal ends at once.
    pub fn silent() -> Self {
        Self { stoppable: false, ..Self::unseen() }
    }

    /// Keeps every record in memory.
    pub fn keeping_records(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Writes to this folder.
    pub fn with_folder(mut self, folder: Option<RunFolder>) -> Self {
        self.folder = folder;
        self
    }

    /// Writes TensorBoard events.
    pub fn with_board(mut self, board: Option<Board>) -> Self {
        self.board = board;
        self
    }

    /// Evaluates f on these rows where the machines cannot.
    pub fn with_pooled(mut self, pooled: Option<Box<dyn Objective>>) -> Self {
        self.pooled = pooled;
        self
    }

    /// What every file of the run says of it, where it is kept.
    pub fn about(&self) -> Option<&About> {
        self.folder.as_ref().map(RunFolder::about)
    }

    /// Puts everything on the disk.
    pub fn close(&mut self) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(folder) = &mut self.folder {
            folder.close()?;
        }
        if let Some(board) = &mut self.board {
            board.flush()?;
        }
        Ok(())
    }

    fn show(&self, record: &Record) {
        let Some(bar) = &self.bar else { return };
        let value = record.value.map_or(String::new(), |value| format!(", f = {value:.6}"));
        let relative = record.relative.map_or(String::new(), |relative| format!(", {relative:.1e} left"));
        let bytes = units::bytes(record.traffic.wire_bytes());
        bar.set_message(format!("round {}{value}{relative}, {bytes} per machine", record.round));
        match (self.target, record.relative) {
            // Progress towards a target is linear in the digits gained.
            (Some(target), Some(relative)) if relative > 0.0 => {
                bar.set_position((1000.0 * relative.ln() / target.ln()).clamp(0.0, 1000.0) as u64);
            }
            (None, _) => bar.set_position(record.round),
            _ => {}
        }
    }
}

impl Observer for Recorder {
    fn prepared(&mut self, replies: &[Arc<[u8]>], _: Settings) -> Result<(), RunError> {
        self.folder.as_mut().map_or(Ok(()), |folder| folder.prepared(replies))
    }

    fn round(&mut self, record: &Record, replies: &[Arc<[u8]>]) -> Result<(), RunError> {
        if let Some(folder) = &mut self.folder {
            folder.record(record, replies)?;
        }
        if let Some(board) = &mut self.board {
            board.round(record).map_err(|error| JournalError::Io { path: PathBuf::from("events"), error })?;
        }
        if self.keep {
            self.records.push(*record);
        }
        self.show(record);
        Ok(())
    }

    fn value(&mut self, x: &[f64]) -> Option<f64> {
        self.pooled.as_mut().map(|pooled| pooled.value(x))
    }

    fn wants_snapshot(&mut self, round: u64) -> bool {
        let seconds = self.seconds();
        self.folder.as_mut().is_some_and(|folder| folder.wants_snapshot(round, seconds))
    }

    fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), RunError> {
        self.folder.as_mut().map_or(Ok(()), |folder| folder.snapshot(&snapshot))
    }

    fn wants_stop(&mut self) -> bool {
        if self.stoppable {
            rounds_begin();
        }
        self.stoppable && interrupted()
    }

    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}
