//! A run that was kept in a folder: its journal, and whether what lies beside it belongs to it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corewire_journal::{self as journal, About, Contents, JournalError, Snapshot, Stored};
use toml::Table;

use crate::header::{self, Header};
use crate::job::{self, Job};
use crate::{run_folder, session};

/// A run that was kept.
pub struct Earlier {
    /// Where.
    pub folder: PathBuf,
    /// What its journal says of it.
    pub header: Header,
    /// Its journal.
    pub contents: Contents,
}

/// The snapshots of a run.
#[derive(Default)]
pub struct Snapshots {
    /// Those that are whole, the newest first.
    pub whole: Vec<Stored>,
    /// What is wrong with the others.
    pub damaged: Vec<JournalError>,
}

impl Earlier {
    /// The run of a folder, whole.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::before(folder, u64::MAX)
    }

    /// Its first rounds, at most so many, whatever follows them.
    pub fn before(folder: &Path, rounds: u64) -> Result<Self> {
        let path = folder.join("journal.bin");
        if !path.exists() {
            let folder = folder.display();
            bail!("{folder} holds no run: there is no journal.bin; `corewire run --out {folder}` makes one");
        }
        let contents = journal::read_before(&path, rounds)?;
        let header = Header::parse(&contents.header).with_context(|| path.display().to_string())?;
        Ok(Self { folder: folder.to_owned(), header, contents })
    }

    /// The job as it was run, with some keys changed.
    pub fn job(&self, overrides: &[String]) -> Result<Job> {
        job::from_text(&self.header.job, &self.folder, overrides)
    }

    /// What every file of the run says of it.
    pub fn about(&self) -> About {
        self.header.about(&self.contents.header)
    }

    /// x0, which must be the one that the run began with: by the folder's own file, or where that is gone, by what the run began from.
    pub fn start(&self) -> Result<Vec<f64>> {
        let path = self.folder.join("start.safetensors");
        if path.exists() {
            let (mut vectors, about) = journal::read_model(&path)?;
            self.check_belongs(&path, &about)?;
            return self.checked(vectors.remove("x").unwrap_or_default(), &path, "put back the file of this run");
        }
        let zeros = vec![0.0; self.header.facts().dim];
        if header::digest_of(&zeros) == self.header.start {
            return Ok(zeros);
        }
        match self.job(&[])?.problem.start {
            Some(from) if from.exists() => self.start_from(&from),
            Some(from) => bail!(
                "{} is not there, nor is {}, from which this run began; `corewire replay {} --start FILE` takes it from elsewhere",
                path.display(),
                from.display(),
                self.folder.display()
            ),
            None => bail!("{} is not there: put back the file of this run", path.display()),
        }
    }

    /// x0 from a model or from tensors of PyTorch's, which must be those that the run began with.
    pub fn start_from(&self, path: &Path) -> Result<Vec<f64>> {
        let start = session::network_start(path, &self.job(&[])?, &self.header.layout())?;
        self.checked(start, path, "take the file that this run began from")
    }

    fn checked(&self, start: Vec<f64>, path: &Path, advice: &str) -> Result<Vec<f64>> {
        if header::digest_of(&start) != self.header.start {
            bail!("{}: its `start` is not the point where journal.bin began; {advice}", path.display());
        }
        Ok(start)
    }

    /// Its snapshots. One that is whole and does not belong to this run, or where this journal is, is refused: somebody put it there.
    /// Where only the first rounds were read, later snapshots are left out.
    pub fn snapshots(&self, first_rounds: bool) -> Result<Snapshots> {
        let mut snapshots = Snapshots::default();
        let most = if first_rounds { self.contents.rounds.len() as u64 } else { u64::MAX };
        for round in Snapshot::list(&self.folder)?.into_iter().rev().filter(|&round| round <= most) {
            match Stored::read(&self.folder, round) {
                Err(error) => snapshots.damaged.push(error),
                Ok(stored) => {
                    self.check_belongs(&Snapshot::path(&self.folder, round), &stored.about)?;
                    stored.check(&self.folder, round, &self.contents)?;
                    snapshots.whole.push(stored);
                }
            }
        }
        Ok(snapshots)
    }

    /// Refuses a job, a model or a table of rounds of another run; says which were there. What a run may do without may be missing.
    pub fn check_others(&self) -> Result<Vec<&'static str>> {
        let mut there = Vec::new();
        let job = self.folder.join("job.toml");
        if job.exists() {
            let text = std::fs::read_to_string(&job).with_context(|| format!("cannot read {}", job.display()))?;
            let theirs = job::parse(&text).with_context(|| format!("in {}", job.display()))?;
            if let Some(difference) = difference(&theirs, &job::parse(&self.header.job)?) {
                bail!("{}: {difference}", job.display());
            }
            there.push("job.toml");
        }
        let model = self.folder.join("model.safetensors");
        if model.exists() {
            self.check_belongs(&model, &journal::read_model(&model)?.1)?;
            there.push("model.safetensors");
        }
        let table = self.folder.join("rounds.csv");
        if table.exists() {
            let text = std::fs::read_to_string(&table).with_context(|| format!("cannot read {}", table.display()))?;
            let run = journal::run_id(&self.contents.header);
            if let Some(line) = run_folder::lines(&text).find(|line| line.run != run) {
                bail!("{}", mismatch(&table, "run", line.run, &run));
            }
            there.push("rounds.csv");
        }
        Ok(there)
    }

    /// Refuses a file that says it is of another run, by the first field that differs.
    fn check_belongs(&self, path: &Path, theirs: &About) -> Result<()> {
        let own = self.about();
        let word = |about: &About, field: &str| about.get(field).cloned().unwrap_or_else(|| "absent".to_owned());
        for field in ["version", "seed", "method", "machines", "rows", "job", "run"] {
            let (their, own) = (word(theirs, field), word(&own, field));
            if their == own {
                continue;
            }
            let tables = (field == "job").then(|| Some((job::parse(&their).ok()?, job::parse(&own).ok()?))).flatten();
            match tables.and_then(|(their, own)| difference(&their, &own)) {
                Some(difference) => bail!("{}: {difference}", path.display()),
                None => bail!("{}", mismatch(path, field, &their, &own)),
            }
        }
        Ok(())
    }
}

/// How many characters of a value are shown.
const SHOWN: usize = 60;

fn mismatch(path: &Path, field: &str, their: &str, own: &str) -> String {
    format!("{}: {}", path.display(), differs(field, their, own))
}

fn differs(field: &str, their: &str, own: &str) -> String {
    let short = |text: &str| text.chars().take(SHOWN).collect::<String>();
    let (their, own) = (short(their), short(own));
    format!(
        "its `{field}` is {their}, and journal.bin has {own}: they are of different runs; put back the file of this run"
    )
}

/// The first key by which two jobs differ, in words.
fn difference(theirs: &Table, own: &Table) -> Option<String> {
    let flat = |table: &Table| -> std::collections::BTreeMap<String, String> {
        let sections = table.iter().flat_map(|(section, content)| {
            let keys = content.as_table().cloned().unwrap_or_default();
            keys.into_iter().map(move |(key, value)| (format!("{section}.{key}"), value.to_string()))
        });
        sections.collect()
    };
    let (theirs, own) = (flat(theirs), flat(own));
    let key = theirs.keys().chain(own.keys()).find(|key| theirs.get(*key) != own.get(*key))?;
    let shown =
        |table: &std::collections::BTreeMap<String, String>| table.get(key).map_or("absent", String::as_str).to_owned();
    Some(differs(key, &shown(&theirs), &shown(&own)))
}
