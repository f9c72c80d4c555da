//! What a journal's header says of its run: enough to replay it without data, and to refuse what does not belong to it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use corewire_journal::{self as journal, Contents};
use corewire_optim::catalogue::Constants;
use corewire_optim::layout::Layout;
use corewire_optim::replay::Facts;
use corewire_sketch::Seed;
use serde::{Deserialize, Serialize};

use crate::session::{Prepared, Session};

/// The header of a journal, as JSON.
#[derive(Serialize, Deserialize)]
pub struct Header {
    version: String,
    commitment: String,
    dim: usize,
    machines: usize,
    strong_convexity: f64,
    quadratic: bool,
    convex: bool,
    trace_known: bool,
    l1: f64,
    /// The method, where the job says auto.
    pub method: String,
    /// The job as it was run.
    pub job: String,
    /// Digests of all machines' rows.
    shares: Vec<String>,
    /// What a baseline was given: L, the largest L_i, mu, tr(A), the coupling, l1, then the diagonal of A where it is known.
    constants: Option<Vec<f64>>,
    /// Names and shapes of the blocks of the coordinates.
    layout: Vec<(String, Vec<usize>)>,
}

impl Header {
    /// Of a run that is about to begin.
    pub fn of(session: &Session, prepared: &Prepared) -> Self {
        let Facts { dim, machines, strong_convexity, quadratic, convex, trace_known, l1 } = prepared.facts;
        let numbers = |constants: &Constants| corewire_comm::numbers::read(&constants.to_bytes()).collect();
        let layout =
            prepared.constants.as_ref().map_or_else(|| Layout::vector(dim), |constants| constants.layout.clone());
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commitment: session.seed.commitment().to_string(),
            dim,
            machines,
            strong_convexity,
            quadratic,
            convex,
            trace_known,
            l1,
            method: prepared.info.id.to_owned(),
            job: session.job.table.to_string(),
            shares: prepared.shares.clone(),
            constants: prepared.constants.as_ref().map(numbers),
            layout: layout.blocks().iter().map(|block| (block.name.clone(), block.shape.clone())).collect(),
        }
    }

    /// As text.
    pub fn to_text(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// What a method may ask.
    pub fn facts(&self) -> Facts {
        Facts {
            dim: self.dim,
            machines: self.machines,
            strong_convexity: self.strong_convexity,
            quadratic: self.quadratic,
            convex: self.convex,
            trace_known: self.trace_known,
            l1: self.l1,
        }
    }

    /// What a baseline was given.
    pub fn constants(&self) -> Constants {
        let given = self.constants.as_ref().and_then(|numbers| {
            let bytes = corewire_comm::numbers::to_bytes(numbers);
            Constants::from_bytes(&bytes, self.machines, Layout::new(self.layout.iter().cloned()))
        });
        given.unwrap_or_else(|| Constants::none(self.dim, self.machines, self.l1))
    }

    /// Refuses another seed.
    pub fn check_seed(&self, seed: &Seed) -> Result<()> {
        if self.commitment != seed.commitment().to_string() {
            bail!("the seed is not the one of this run: its commitment is {}", self.commitment);
        }
        Ok(())
    }

    /// Refuses other rows, another version or other parameters than this run began with.
    pub fn check(&self, prepared: &Prepared) -> Result<()> {
        if self.version != env!("CARGO_PKG_VERSION") {
            bail!("the run was begun by version {}, this is {}", self.version, env!("CARGO_PKG_VERSION"));
        }
        if self.facts() != prepared.facts {
            let (dim, machines) = (self.dim, self.machines);
            bail!("the data is not that of this run: it had {dim} coordinates on {machines} machines");
        }
        let other = self.shares.iter().zip(&prepared.shares).position(|(then, now)| then != now);
        if let Some(rank) = other {
            bail!("the rows of machine {rank} are not those of this run: restore its file, or begin a new run");
        }
        Ok(())
    }
}

/// The header and the rounds of a run's journal.
pub fn open(folder: &Path) -> Result<(Header, Contents)> {
    let path = folder.join("journal.bin");
    if !path.exists() {
        let folder = folder.display();
        bail!("{folder} holds no run: there is no journal.bin; `corewire run --out {folder}` makes one");
    }
    let contents = journal::read(&path)?;
    let header = serde_json::from_str(&contents.header)
        .with_context(|| format!("{}: the header is not understood", path.display()))?;
    Ok((header, contents))
}

/// x0 of a run.
pub fn start(folder: &Path) -> Result<Vec<f64>> {
    let (mut vectors, _): (BTreeMap<String, Vec<f64>>, _) = journal::read_model(&folder.join("start.safetensors"))?;
    Ok(vectors.remove("x").unwrap_or_default())
}
