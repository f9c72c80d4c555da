//! The folder of a run: its journal, its snapshots, its table of rounds.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use corewire_journal::disk::{remove_leftovers, sync_folder, write_whole};
use corewire_journal::{
    self as journal, About, Contents, Journal, JournalError, PREPARATION, RoundReplies, Snapshot, Stored,
};
use corewire_optim::RunError;
use corewire_optim::run::Record;

use crate::header::Header;
use crate::interrupt::interrupted;
use crate::secrecy;

/// Snapshots are taken after this many rounds, or this many seconds, whichever comes first.
const SNAPSHOT_ROUNDS: u64 = 256;
const SNAPSHOT_SECONDS: f64 = 10.0;

/// Where a run is kept.
pub struct RunFolder {
    folder: PathBuf,
    journal: Journal,
    csv: BufWriter<File>,
    /// What the journal says of rounds that are being run again after a resume.
    expected: VecDeque<RoundReplies>,
    /// What the journal says of the preparation, where a run begins anew.
    expected_preparation: Option<RoundReplies>,
    /// What every file of the run says of it.
    about: About,
    /// The journal's chain after the last round that was run.
    link: [u8; 8],
    last_snapshot: (u64, f64),
    last_sync: f64,
    /// Held as long as this process writes; the system gives it back when the process ends.
    _lock: File,
}

/// Columns of `rounds.csv`. The last says of which run a line is.
const COLUMNS: &str = "\
    round,value,relative,score,gradient_norm,gap,step,rejected,\
    up_bytes,down_bytes,control_bytes,frame_bytes,setup_bytes,exchanges,link_seconds,seconds,run";

/// A whole line of the table of rounds.
pub struct TableLine<'a> {
    /// Its round.
    pub round: u64,
    /// Its run.
    pub run: &'a str,
    text: &'a str,
}

/// The whole lines of a table of rounds. The last may have been cut short by a crash.
pub fn lines(table: &str) -> impl Iterator<Item = TableLine<'_>> {
    table.split_inclusive('\n').skip(1).filter_map(|text| {
        let text = text.strip_suffix('\n')?;
        let cells: Vec<&str> = text.split(',').collect();
        let round = cells[0].parse().ok().filter(|_| cells.len() == COLUMNS.split(',').count())?;
        Some(TableLine { round, run: cells.last()?, text })
    })
}

/// A folder that no other process may write.
pub struct Held(File);

impl RunFolder {
    /// Refuses a folder that already holds a run, before any work is done.
    pub fn check_new(folder: &Path) -> Result<()> {
        if folder.join("journal.bin").exists() {
            let folder = folder.display();
            bail!("{folder} already holds a run; resume it with `--resume {folder}`, or name another folder");
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))
    }

    /// Makes the folder its owner's alone, for a run with a secret seed.
    pub fn close_to_others(folder: &Path) -> Result<()> {
        secrecy::close(folder).with_context(|| format!("cannot change the permissions of {}", folder.display()))
    }

    /// A new run's folder, which must not hold a run yet. The journal comes last: where there is one, everything else is there too.
    pub fn create(folder: &Path, header: &Header, start: &[f64]) -> Result<Self> {
        Self::check_new(folder)?;
        let lock = lock(folder)?;
        Self::check_new(folder)?;
        let text = header.to_text()?;
        let about = header.about(&text);
        let vectors = BTreeMap::from([("x".to_owned(), start.to_vec())]);
        journal::write_model(&folder.join("start.safetensors"), &(vectors, about.clone()))?;
        write_whole(&folder.join("job.toml"), header.job.as_bytes())?;
        let csv = table(folder, std::iter::empty())?;
        let journal = Journal::create(&folder.join("journal.bin"), &text)?;
        // The folder's own name must survive, too.
        sync_folder(&folder.join(".."))?;
        Ok(Self::new(folder, journal, csv, about, lock))
    }

    /// A new folder with the first rounds of another run, which goes on there from round `begin`.
    pub fn branch(
        folder: &Path,
        header: &Header,
        start: &[f64],
        contents: &Contents,
        snapshots: &[Stored],
        begin: u64,
    ) -> Result<Self> {
        let mut new = Self::create(folder, header, start)?;
        for entry in contents.preparation.iter().chain(&contents.rounds) {
            new.journal.append(entry.round, &entry.replies)?;
        }
        new.journal.sync()?;
        // Another header is another chain.
        let contents = journal::read(&folder.join("journal.bin"))?;
        for Stored { snapshot, .. } in snapshots.iter().rev() {
            let link = contents.link_at(snapshot.round).context("a snapshot lies within its journal")?;
            snapshot.write(folder, &new.about, link)?;
        }
        new.go_on(&contents, begin);
        Ok(new)
    }

    /// Takes a run's folder for this process alone, before anything but its journal was looked at: what another process writes meanwhile
    /// would look like damage.
    pub fn hold(folder: &Path, contents: &Contents) -> Result<Held> {
        let held = Held(lock(folder)?);
        let length = std::fs::metadata(folder.join("journal.bin")).map_or(0, |about| about.len());
        if length != contents.whole_bytes + contents.torn_bytes {
            bail!("the run in {} went on while it was being read; try again", folder.display());
        }
        Ok(held)
    }

    /// Goes on with a run from round `begin`, checking against whatever the journal has beyond it: nothing of it is ever written anew.
    pub fn reopen(folder: &Path, held: &Held, header: &Header, contents: &Contents, begin: u64) -> Result<Self> {
        remove_leftovers(folder)?;
        let path = folder.join("rounds.csv");
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        // Rounds that are run again are written again.
        let kept: Vec<TableLine<'_>> = lines(&old).filter(|line| line.round <= begin).collect();
        let first = kept.first().map_or(begin + 1, |line| line.round);
        let next = first + kept.iter().zip(first..).take_while(|(line, round)| line.round == *round).count() as u64;
        if next <= begin {
            bail!("{}: its `round` {next} is missing; put back the file of this run, or take it away", path.display());
        }
        let csv = table(folder, kept.iter().map(|line| line.text))?;
        let journal = Journal::reopen(&folder.join("journal.bin"), contents)?;
        let lock = held.0.try_clone()?;
        let mut run = Self::new(folder, journal, csv, header.about(&contents.header), lock);
        run.go_on(contents, begin);
        Ok(run)
    }

    fn new(folder: &Path, journal: Journal, csv: BufWriter<File>, about: About, lock: File) -> Self {
        Self {
            folder: folder.to_owned(),
            link: journal.chain(),
            journal,
            csv,
            expected: VecDeque::new(),
            expected_preparation: None,
            about,
            last_snapshot: (0, 0.0),
            last_sync: 0.0,
            _lock: lock,
        }
    }

    /// From round `begin` on: what the journal has beyond it is expected.
    fn go_on(&mut self, contents: &Contents, begin: u64) {
        self.expected = contents.rounds[begin as usize..].iter().cloned().collect();
        self.expected_preparation = contents.preparation.clone().filter(|_| begin == 0);
        self.link = contents.link_at(begin).unwrap_or(self.link);
        self.last_snapshot = (begin, 0.0);
    }

    /// Appends a round to the journal, or compares it with what the journal says already, and to the table.
    pub fn record(&mut self, record: &Record, replies: &[Arc<[u8]>]) -> Result<(), RunError> {
        let round = record.round - 1;
        self.link = match self.expected.pop_front() {
            Some(entry) if entry.replies == replies => entry.link,
            Some(_) => return Err(JournalError::Mismatch { round }.into()),
            None => {
                patiently(|| self.journal.append(round, replies))?;
                self.journal.chain()
            }
        };
        let optional = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:e}"));
        let passed = &record.traffic;
        let line = format!(
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.6},{}\n",
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
            record.seconds,
            self.about["run"]
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
        self.link = match self.expected_preparation.take() {
            Some(before) if before.replies == replies => before.link,
            Some(_) => return Err(JournalError::Mismatch { round: 0 }.into()),
            None => {
                patiently(|| self.journal.append(PREPARATION, replies))?;
                self.journal.chain()
            }
        };
        Ok(())
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
        self.sync_table()?;
        Ok(patiently(|| snapshot.write(&self.folder, &self.about, self.link))?)
    }

    fn sync_table(&mut self) -> Result<(), RunError> {
        let path = self.folder.join("rounds.csv");
        let mut sync = || self.csv.flush().and_then(|()| self.csv.get_ref().sync_data());
        Ok(patiently(|| sync().map_err(|error| JournalError::Io { path: path.clone(), error }))?)
    }

    /// What every file of the run says of it.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Puts everything on the disk.
    pub fn close(&mut self) -> Result<()> {
        self.sync_table()?;
        Ok(patiently(|| self.journal.sync())?)
    }
}

/// The table of rounds with these lines, open at its end. It is renamed into place: whoever stops here leaves the old one or the new one.
fn table<'a>(folder: &Path, lines: impl Iterator<Item = &'a str>) -> Result<BufWriter<File>> {
    let path = folder.join("rounds.csv");
    let text: String = std::iter::once(COLUMNS).chain(lines).flat_map(|line| [line, "\n"]).collect();
    write_whole(&path, text.as_bytes())?;
    let file =
        OpenOptions::new().append(true).open(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::new(file))
}

/// Takes a run's folder for this process alone, or names who has it.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    if path.is_symlink() {
        bail!("{} is a link: take it away, for it would be written through", path.display());
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    if file.try_lock().is_err() {
        let holder = std::fs::read_to_string(&path).unwrap_or_default();
        bail!("{} is being written by process {}; wait until it ends", folder.display(), holder.trim());
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
            // A quota is a disk that is full for one of its users.
            Err(JournalError::Io { path, error })
                if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) && !interrupted() =>
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_full_quota_are_waited_for_and_other_errors_are_not() {
        // ENOSPC, EDQUOT and EIO of Linux.
        for (code, waits) in [(28, true), (122, true), (5, false)] {
            let mut attempts = 0;
            let result = patiently(|| {
                attempts += 1;
                let error = std::io::Error::from_raw_os_error(code);
                if attempts == 1 { Err(JournalError::Io { path: "journal.bin".into(), error }) } else { Ok(()) }
            });
            assert_eq!((result.is_ok(), attempts), (waits, 1 + u32::from(waits)), "{code}");
        }
    }
}
