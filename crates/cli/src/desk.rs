//! Machine 0's desk during a run: progress, the table of rounds, the journal, snapshots, and the wish to stop.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use corewire_optim::RunError;
use corewire_optim::journal::{Entry, Journal, JournalError, PREPARATION, Snapshot};
use corewire_optim::method::{Method, Settings};
use corewire_optim::run::{Observer, Record};
use indicatif::{ProgressBar, ProgressStyle};

use crate::units;

/// How often Ctrl-C was pressed.
static INTERRUPTS: AtomicUsize = AtomicUsize::new(0);

/// From now on the first Ctrl-C ends the run after its round, the second at once.
pub fn watch_interrupts() {
    let pressed = || {
        if INTERRUPTS.fetch_add(1, Ordering::SeqCst) > 0 {
            std::process::exit(130);
        }
        eprintln!("\ncorewire: stopping after this round; press Ctrl-C again to stop at once");
    };
    // A second handler in one process is only tried by tests.
    let _ = ctrlc::set_handler(pressed);
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    INTERRUPTS.load(Ordering::SeqCst) > 0
}

/// Snapshots are taken after this many rounds, or this many seconds, whichever comes first.
const SNAPSHOT_ROUNDS: u64 = 256;
const SNAPSHOT_SECONDS: f64 = 10.0;

/// Where a run is kept.
pub struct Archive {
    folder: PathBuf,
    journal: Journal,
    csv: BufWriter<File>,
    /// What the journal says of rounds that are being run again after a resume.
    expected: std::collections::VecDeque<Entry>,
    last_snapshot: (u64, f64),
    last_sync: f64,
}

/// Columns of `rounds.csv`.
const COLUMNS: &str =
    "round,value,relative,gradient_norm,step,rejected,up_bytes,down_bytes,frame_bytes,trips,link_seconds,seconds";

impl Archive {
    /// A new run's folder, which must not hold a run yet.
    pub fn create(folder: &Path, header: &str) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let path = folder.join("journal.bin");
        if path.exists() {
            anyhow::bail!(
                "{} holds a run already; go on with it by `--resume {}`, or name another folder",
                folder.display(),
                folder.display()
            );
        }
        Self::replace(folder, header)
    }

    /// The same in place of a run that stopped before its first snapshot.
    pub fn replace(folder: &Path, header: &str) -> Result<Self> {
        let journal = Journal::replace(&folder.join("journal.bin"), header)?;
        let csv = folder.join("rounds.csv");
        let mut csv = BufWriter::new(File::create(&csv).with_context(|| format!("cannot write {}", csv.display()))?);
        writeln!(csv, "{COLUMNS}")?;
        Ok(Self {
            folder: folder.to_owned(),
            journal,
            csv,
            expected: Default::default(),
            last_snapshot: (0, 0.0),
            last_sync: 0.0,
        })
    }

    /// Goes on with a run from round `begin`, checking against the rounds that the journal has beyond it.
    pub fn reopen(folder: &Path, contents: &corewire_optim::journal::Contents, begin: u64) -> Result<Self> {
        let journal = Journal::reopen(&folder.join("journal.bin"), contents)?;
        let path = folder.join("rounds.csv");
        // Rounds that are run again are written again.
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let keep = |line: &&str| {
            line.split(',').next().and_then(|round| round.parse::<u64>().ok()).is_some_and(|round| round <= begin)
        };
        let kept = old.lines().skip(1).filter(|line| line.split(',').count() == 12).filter(keep);
        let table: String = std::iter::once(COLUMNS).chain(kept).flat_map(|line| [line, "\n"]).collect();
        // Renamed into place: whoever stops here leaves the old table or the new one.
        let temporary = path.with_extension("tmp");
        std::fs::write(&temporary, table)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let csv = BufWriter::new(OpenOptions::new().append(true).open(&path)?);
        let expected = contents.rounds[begin as usize..].iter().cloned().collect();
        Ok(Self { folder: folder.to_owned(), journal, csv, expected, last_snapshot: (begin, 0.0), last_sync: 0.0 })
    }

    fn record(&mut self, record: &Record, replies: &[Arc<[u8]>]) -> Result<(), RunError> {
        let round = record.round - 1;
        match self.expected.pop_front() {
            Some(entry) if entry.replies == replies => {}
            Some(_) => return Err(JournalError::Mismatch { round }.into()),
            None => patiently(|| self.journal.append(round, replies))?,
        }
        let optional = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:e}"));
        let line = format!(
            "{},{:e},{},{},{},{},{},{},{},{},{},{:.6}\n",
            record.round,
            record.value,
            optional(record.relative),
            optional(record.outcome.gradient_norm),
            optional(record.outcome.step),
            u8::from(record.outcome.rejected),
            record.up_bytes,
            record.down_bytes,
            record.frame_bytes,
            record.trips,
            record.link_seconds,
            record.seconds
        );
        // In one piece: a buffer that the disk refused has taken nothing of it, so that it can be handed over again.
        let path = self.folder.join("rounds.csv");
        patiently(|| {
            self.csv.write_all(line.as_bytes()).map_err(|error| JournalError::Io { path: path.clone(), error })
        })?;
        if record.seconds - self.last_sync > 1.0 {
            self.last_sync = record.seconds;
            patiently(|| self.journal.sync())?;
        }
        Ok(())
    }
}

/// Tries again while the disk is full: nothing is lost, and the run goes on once there is room.
fn patiently(mut attempt: impl FnMut() -> Result<(), JournalError>) -> Result<(), JournalError> {
    let mut told = false;
    loop {
        match attempt() {
            Err(JournalError::Io { path, error })
                if error.kind() == std::io::ErrorKind::StorageFull && !interrupted() =>
            {
                if !told {
                    eprintln!(
                        "corewire: the disk is full, {} cannot grow; make room and the run goes on (Ctrl-C stops it)",
                        path.display()
                    );
                    told = true;
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            other => return other,
        }
    }
}

/// Machine 0's observer.
pub struct Desk {
    bar: Option<ProgressBar>,
    archive: Option<Archive>,
    board: Option<crate::tensorboard::Board>,
    begun: Instant,
    target: Option<f64>,
    /// Every record, for plots and reports.
    pub records: Vec<Record>,
    keep: bool,
}

impl Desk {
    /// A desk; a bar is shown only on a terminal.
    pub fn new(quiet: bool, rounds: u64, target: Option<f64>) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style =
                ProgressStyle::with_template("{msg}\n{wide_bar:.cyan/dim} {eta} left").expect("a valid template");
            ProgressBar::new(if target.is_some() { 1000 } else { rounds }).with_style(style)
        });
        Self { bar, archive: None, board: None, begun: Instant::now(), target, records: Vec::new(), keep: false }
    }

    /// Keeps every record in memory.
    pub fn keeping_records(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Writes to this archive.
    pub fn with_archive(mut self, archive: Option<Archive>) -> Self {
        self.archive = archive;
        self
    }

    /// Writes TensorBoard events.
    pub fn with_board(mut self, board: Option<crate::tensorboard::Board>) -> Self {
        self.board = board;
        self
    }

    /// Puts everything on the disk.
    pub fn close(mut self) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(archive) = &mut self.archive {
            archive.csv.flush()?;
            archive.journal.sync()?;
        }
        if let Some(board) = &mut self.board {
            board.flush()?;
        }
        Ok(())
    }
}

impl Observer for Desk {
    fn prepared(&mut self, replies: &[Arc<[u8]>], _: Settings, _: &mut dyn Method) -> Result<(), RunError> {
        if let Some(archive) = &mut self.archive {
            patiently(|| archive.journal.append(PREPARATION, replies))?;
        }
        Ok(())
    }

    fn round(&mut self, record: &Record, replies: &[Arc<[u8]>], _: &mut dyn Method) -> Result<(), RunError> {
        if let Some(archive) = &mut self.archive {
            archive.record(record, replies)?;
        }
        if let Some(board) = &mut self.board {
            board.round(record).map_err(|error| JournalError::Io { path: PathBuf::from("events"), error })?;
        }
        if self.keep {
            self.records.push(*record);
        }
        if let Some(bar) = &self.bar {
            let relative = record.relative.map_or(String::new(), |relative| format!(", {relative:.1e} left"));
            bar.set_message(format!(
                "round {}, f = {:.6}{relative}, {} up and {} down a machine",
                record.round,
                record.value,
                units::bytes(record.up_bytes),
                units::bytes(record.down_bytes)
            ));
            match (self.target, record.relative) {
                // Progress towards a target is linear in the digits gained.
                (Some(target), Some(relative)) if relative > 0.0 => {
                    bar.set_position((1000.0 * relative.ln() / target.ln()).clamp(0.0, 1000.0) as u64);
                }
                (None, _) => bar.set_position(record.round),
                _ => {}
            }
        }
        Ok(())
    }

    fn wants_snapshot(&mut self, round: u64, last: bool) -> bool {
        let seconds = self.seconds();
        let Some(archive) = &mut self.archive else { return false };
        let (last_round, last_seconds) = archive.last_snapshot;
        let due = round >= last_round + SNAPSHOT_ROUNDS || seconds >= last_seconds + SNAPSHOT_SECONDS || last;
        if due {
            archive.last_snapshot = (round, seconds);
        }
        due
    }

    fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), RunError> {
        if let Some(archive) = &mut self.archive {
            patiently(|| archive.journal.sync())?;
            let folder = archive.folder.clone();
            // A resume begins after this round and writes only the rows that follow.
            let path = folder.join("rounds.csv");
            patiently(|| archive.csv.flush().map_err(|error| JournalError::Io { path: path.clone(), error }))?;
            patiently(|| snapshot.write(&folder))?;
        }
        Ok(())
    }

    fn wants_stop(&mut self) -> bool {
        interrupted()
    }

    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}
