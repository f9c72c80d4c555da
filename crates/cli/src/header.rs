//! What a journal's header says of its run: enough to replay it without data, and to refuse what does not belong to it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use corewire_journal::{self as journal, About};
use corewire_optim::catalogue::Constants;
use corewire_optim::layout::Layout;
use corewire_optim::proximal::Proximal;
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
    /// Blocks of coordinates that meet the same columns: the classes of softmax.
    /// Journals from before core-newton took softmax do not tell.
    #[serde(default)]
    blocks: Option<usize>,
    l1: f64,
    /// Bounds on every coordinate, where there are some.
    lower: Option<f64>,
    upper: Option<f64>,
    /// The method, where the job says auto.
    pub method: String,
    /// The job as it was run; its paths are meant from the folder of the run.
    pub job: String,
    /// A digest of the point where it began.
    pub start: String,
    /// Digests of all machines' rows.
    shares: Vec<String>,
    /// What a baseline was given: L, the largest L_i, mu, tr(A), the coupling, then the diagonal of A where it is known.
    constants: Option<Vec<f64>>,
    /// Names and shapes of the blocks of the coordinates.
    layout: Vec<(String, Vec<usize>)>,
}

impl Header {
    /// Of a run that is about to begin in a folder.
    pub fn of(session: &Session, prepared: &Prepared, folder: &Path) -> Self {
        let Facts { dim, blocks, machines, strong_convexity, quadratic, convex, trace_known, proximal } =
            prepared.facts;
        let numbers = |constants: &Constants| corewire_comm::numbers::read(&constants.to_bytes()).collect();
        let pooled = || session.pooled.as_ref().map(|pooled| pooled.problem.layout());
        let given = prepared.constants.as_ref().map(|constants| constants.layout.clone());
        let layout = given.or_else(pooled).unwrap_or_else(|| Layout::vector(dim));
        Self {
            version: VERSION.to_owned(),
            commitment: session.seed.commitment().to_string(),
            dim,
            machines,
            strong_convexity,
            quadratic,
            convex,
            trace_known,
            blocks: Some(blocks),
            l1: proximal.l1,
            lower: Some(proximal.lower).filter(|bound| bound.is_finite()),
            upper: Some(proximal.upper).filter(|bound| bound.is_finite()),
            method: prepared.info.id.to_owned(),
            job: session.job.portable(folder),
            start: digest_of(&prepared.start),
            shares: prepared.shares.clone(),
            constants: prepared.constants.as_ref().map(numbers),
            layout: layout.blocks().iter().map(|block| (block.name.clone(), block.shape.clone())).collect(),
        }
    }

    /// From the text of a journal. One of another version is refused: it may have meant other numbers by the same words.
    pub fn parse(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        let Version { version } = serde_json::from_str(text).context("the header is not understood")?;
        if version != VERSION {
            bail!(
                "its `version` is {version}, and this is {VERSION}: take that version to resume, replay or verify it"
            );
        }
        let header: Self = serde_json::from_str(text).context("the header is not understood")?;
        if header.blocks.is_some_and(|blocks| blocks == 0 || !header.dim.is_multiple_of(blocks)) {
            bail!("the header is not understood: its `blocks` do not divide its {} coordinates", header.dim);
        }
        Ok(header)
    }

    /// What every file of the run says of it: which run it is, and by what another one differs. `text` is the whole header.
    pub fn about(&self, text: &str) -> About {
        let rows = blake3::hash(self.shares.concat().as_bytes()).to_hex()[..16].to_owned();
        BTreeMap::from(
            [
                ("run", journal::run_id(text)),
                ("version", self.version.clone()),
                ("seed", self.commitment.clone()),
                ("method", self.method.clone()),
                ("machines", self.machines.to_string()),
                ("rows", rows),
                ("job", self.job.clone()),
            ]
            .map(|(field, value)| (field.to_owned(), value)),
        )
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
            blocks: self.blocks.unwrap_or(1),
            proximal: self.proximal(),
        }
    }

    fn proximal(&self) -> Proximal {
        let none = Proximal::NONE;
        Proximal { l1: self.l1, lower: self.lower.unwrap_or(none.lower), upper: self.upper.unwrap_or(none.upper) }
    }

    /// What a baseline was given.
    pub fn constants(&self) -> Result<Constants> {
        let Some(numbers) = &self.constants else {
            return Ok(Constants::none(self.dim, self.machines, self.proximal()));
        };
        let bytes = corewire_comm::numbers::to_bytes(numbers);
        Constants::from_bytes(&bytes, self.machines, self.layout(), self.proximal())
            .context("journal.bin: its `constants` are not understood")
    }

    /// The blocks of the coordinates.
    pub fn layout(&self) -> Layout {
        Layout::new(self.layout.iter().cloned())
    }

    /// Refuses another seed.
    pub fn check_seed(&self, seed: &Seed) -> Result<()> {
        if self.commitment != seed.commitment().to_string() {
            bail!("the seed is not the one of this run: its commitment is {}", self.commitment);
        }
        Ok(())
    }

    /// Refuses other rows or other parameters than this run began with.
    pub fn check(&self, prepared: &Prepared) -> Result<()> {
        let blocks = self.blocks.unwrap_or(prepared.facts.blocks);
        if (Facts { blocks, ..self.facts() }) != prepared.facts {
            let (dim, machines) = (self.dim, self.machines);
            bail!("the data is not that of this run: it had {dim} coordinates on {machines} machines");
        }
        if self.shares.len() != prepared.shares.len() {
            bail!(
                "journal.bin has the digests of {} machines' rows, not of {}",
                self.shares.len(),
                prepared.shares.len()
            );
        }
        let other = self.shares.iter().zip(&prepared.shares).position(|(then, now)| then != now);
        if let Some(rank) = other {
            bail!("the rows of machine {rank} are not those of this run: restore its file, or begin a new run");
        }
        Ok(())
    }
}

/// The version that a journal's numbers are meant by.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A digest of a point.
pub fn digest_of(point: &[f64]) -> String {
    blake3::hash(&corewire_comm::numbers::to_bytes(point)).to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_divide_the_coordinates_or_are_not_told() {
        let text = |blocks: &str| {
            format!(
                r#"{{"version":"{VERSION}","commitment":"","dim":12,"machines":1,"strong_convexity":0.1,"quadratic":false,
                "convex":true,"trace_known":true,{blocks}"l1":0.0,"lower":null,"upper":null,"method":"cgd","job":"",
                "start":"","shares":[],"constants":null,"layout":[]}}"#
            )
        };
        for blocks in ["", r#""blocks":1,"#, r#""blocks":3,"#] {
            assert!(Header::parse(&text(blocks)).is_ok(), "{blocks}");
        }
        for blocks in [r#""blocks":0,"#, r#""blocks":5,"#] {
            let found = Header::parse(&text(blocks)).err().unwrap().to_string();
            assert!(found.contains("do not divide its 12 coordinates"), "{found}");
        }
    }
}
