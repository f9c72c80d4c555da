//! The folder of a run: its journal, its snapshots, its table of rounds.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use corewire_journal::{Contents, Journal, JournalError, PREPARATION, RoundReplies, Snapshot, run_id};
use corewire_optim::RunError;
use corewire_optim::run::Record;

use crate::interrupt::interrupted;

/// Snapshots are taken after this many rounds, or this many seconds, whichever comes first.
const SNAPSHOT_ROUNDS: u64 = 256;
const SNAPSHOT_SECONDS: f64 = 10.0;

/// Where a run is kept.
pub struct RunFolder {
    folder: PathBuf,
    journal: Journal,
    csv: BufWriter<File>,
    /// What the journal says of rounds that are being run again after a resume.
    expected: std::collections::VecDeque<RoundReplies>,
    /// What the journal says of the preparation, where a run begins anew.
    expected_preparation: Option<RoundReplies>,
    /// Which run it is.
    run: String,
    last_snapshot: (u64, f64),
    last_sync: f64,
    /// Held as long as this process writes; the system gives it back when the process ends.
    _lock: File,
}

/// Columns of `rounds.csv`.
const COLUMNS: &str = "round,value,relative,score,gradient_norm,gap,step,rejected,up_bytes,down_bytes,control_bytes,frame_bytes,setup_bytes,exchanges,link_seconds,seconds";

impl RunFolder {
    /// Refuses a folder that already holds a run, before any work is done.
    pub fn check_new(folder: &Path) -> Result<()> {
        if folder.join("journal.bin").exists() {
            let folder = folder.display();
            anyhow::bail!("{folder} already holds a run; resume it with `--resume {folder}`, or name another folder");
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))
    }

    /// A new run's folder, which must not hold a run yet.
    pub fn create(folder: &Path, header: &str) -> Result<Self> {
        Self::check_new(folder)?;
        let lock = lock(folder)?;
        Self::check_new(folder)?;
        let journal = Journal::create(&folder.join("journal.bin"), header)?;
        let csv = folder.join("rounds.csv");
        let mut csv = BufWriter::new(File::create(&csv).with_context(|| format!("cannot write {}", csv.display()))?);
        writeln!(csv, "{COLUMNS}")?;
        Ok(Self {
            folder: folder.to_owned(),
            journal,
            csv,
            expected: Default::default(),
            expected_preparation: None,
            run: run_id(header),
            last_snapshot: (0, 0.0),
            last_sync: 0.0,
            _lock: lock,
        })
    }

    /// Goes on with a run from round `begin`, checking against whatever the journal has beyond it: nothing of it is ever written anew.
    pub fn reopen(folder: &Path, contents: &Contents, begin: u64) -> Result<Self> {
        let lock = lock(folder)?;
        let path = folder.join("journal.bin");
        let length = std::fs::metadata(&path).map_or(0, |about| about.len());
        if length != contents.whole_bytes + contents.torn_bytes {
            anyhow::bail!("the run in {} went on while it was being read; try again", folder.display());
        }
        let journal = Journal::reopen(&path, contents)?;
        let path = folder.join("rounds.csv");
        // Rounds that are run again are written again.
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let keep = |line: &&str| {
            line.split(',').next().and_then(|round| round.parse::<u64>().ok()).is_some_and(|round| round <= begin)
        };
        let kept =
            old.lines().skip(1).filter(|line| line.split(',').count() == COLUMNS.split(',').count()).filter(keep);
        let table: String = std::iter::once(COLUMNS).chain(kept).flat_map(|line| [line, "\n"]).collect();
        // Renamed into place: whoever stops here leaves the old table or the new one.
        let temporary = path.with_extension("tmp");
        std::fs::write(&temporary, table)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let csv = BufWriter::new(OpenOptions::new().append(true).open(&path)?);
        let expected = contents.rounds[begin as usize..].iter().cloned().collect();
        Ok(Self {
            folder: folder.to_owned(),
            journal,
            csv,
            expected,
            expected_preparation: contents.preparation.clone().filter(|_| begin == 0),
            run: run_id(&contents.header),
            last_snapshot: (begin, 0.0),
            last_sync: 0.0,
            _lock: lock,
        })
    }

    /// Appends a round to the journal, or compares it with what the journal says already, and to the table.
    pub fn record(&mut self, record: &Record, replies: &[Arc<[u8]>]) -> Result<(), RunError> {
        let round = record.round - 1;
        match self.expected.pop_front() {
            Some(entry) if entry.replies == replies => {}
            Some(_) => return Err(JournalError::Mismatch { round }.into()),
            None => patiently(|| self.journal.append(round, replies))?,
        }
        let optional = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:e}"));
        let passed = &record.traffic;
        let line = format!(
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.6}\n",
            record.round,
            optional(record.value),
            optional(record.relative),
            optional(record.score.map(|score| score.score)),
            optional(record.outcome.gradient_norm),
            optional(record.outcome.gap),
            optional(record.outcome.step),
            u8::from(record.outcome.rejected),
            passed.up_bytes,
            passed.down_bytes,
            passed.control_bytes,
            passed.frame_bytes,
            passed.setup_bytes,
            passed.exchanges,
            passed.link_seconds,
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

    /// The replies of preparation.
    pub fn prepared(&mut self, replies: &[Arc<[u8]>]) -> Result<(), RunError> {
        match self.expected_preparation.take() {
            Some(before) if before.replies == replies => Ok(()),
            Some(_) => Err(JournalError::Mismatch { round: 0 }.into()),
            None => Ok(patiently(|| self.journal.append(PREPARATION, replies))?),
        }
    }

    /// Whether a snapshot is due after this many rounds and seconds; the caller then takes it.
    pub fn wants_snapshot(&mut self, round: u64, seconds: f64) -> bool {
        let (last_round, last_seconds) = self.last_snapshot;
        let due = round >= last_round + SNAPSHOT_ROUNDS || seconds >= last_seconds + SNAPSHOT_SECONDS;
        if due {
            self.last_snapshot = (round, seconds);
        }
        due
    }

    /// Writes a snapshot, once what it rests on is on the disk.
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), RunError> {
        patiently(|| self.journal.sync())?;
        // A resume begins after this round and writes only the rows that follow.
        let path = self.folder.join("rounds.csv");
        patiently(|| self.csv.flush().map_err(|error| JournalError::Io { path: path.clone(), error }))?;
        Ok(patiently(|| snapshot.write(&self.folder, &self.run))?)
    }

    /// Puts everything on the disk.
    pub fn close(&mut self) -> Result<()> {
        self.csv.flush()?;
        Ok(self.journal.sync()?)
    }
}

/// Takes a run's folder for this process alone, or names who has it.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    if file.try_lock().is_err() {
        let holder = std::fs::read_to_string(&path).unwrap_or_default();
        anyhow::bail!("{} is being written by process {}; wait until it ends", folder.display(), holder.trim());
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(file)
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
