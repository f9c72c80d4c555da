//! `corewire replay` and `corewire journal verify`: a run again, from its journal alone.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use corewire_journal::{self as journal, Contents, Snapshot};
use corewire_optim::catalogue::{self, Request};
use corewire_optim::method::Method;
use corewire_optim::{replay, state};
use corewire_sketch::CommonRandomness;

use crate::header::{self, Header};
use crate::{job, out, session};

/// The method of a journal, replayed through so many rounds without any data.
fn replayed(folder: &Path, header: &Header, contents: &Contents, rounds: u64) -> Result<Box<dyn Method>> {
    let job = job::from_text(&header.job, &[])?;
    if job.graph.as_ref().is_some_and(job::GraphSpec::gossips) {
        bail!("a run by gossip has no common state and cannot be replayed; with `graph.gossip` = \"tree\" it could be");
    }
    let seed = session::seed(&job)?;
    header.check_seed(&seed)?;
    let (facts, constants, start) = (header.facts(), header.constants(), header::start(folder)?);
    if start.len() != facts.dim {
        bail!("start.safetensors has {} coordinates and the journal {}", start.len(), facts.dim);
    }
    let request = Request {
        info: catalogue::find(&header.method).map_err(|error| anyhow!(error))?,
        parameters: &job.method.parameters,
        settings: &job.method.settings,
        start: &start,
        constants: &constants,
        quadratic: facts.quadratic,
        randomness: &CommonRandomness::new(&seed),
    };
    let mut method = catalogue::build(&request, None).map_err(|error| anyhow!(error))?;
    replay::replay(&mut *method, contents, facts, rounds)?;
    Ok(method)
}

/// `corewire replay`.
pub fn replay(folder: &Path, to: Option<u64>, path: &Path, json: bool) -> Result<()> {
    let (header, contents) = header::open(folder)?;
    let rounds = to.unwrap_or(contents.rounds.len() as u64);
    let mut method = replayed(folder, &header, &contents, rounds)?;
    let digest = format!("{:016x}", state::digest(&mut *method));
    // What the run's own model says of rows and classes holds for this one too.
    let own = journal::read_model(&folder.join("model.safetensors")).ok();
    let (mut vectors, mut about) = own.unwrap_or_default();
    vectors.insert("x".to_owned(), method.iterate().to_vec());
    about.extend(BTreeMap::from([
        ("rounds".to_owned(), rounds.to_string()),
        ("digest".to_owned(), digest.clone()),
        ("job".to_owned(), header.job.clone()),
    ]));
    journal::write_model(path, &(vectors, about))?;
    if json {
        return out::json(&serde_json::json!({ "rounds": rounds, "digest": digest, "model": path }));
    }
    out::line(&format!("replayed {rounds} rounds from {} without data; digest {digest}", folder.display()))?;
    out::line(&format!("the model is in {}", path.display()))
}

/// `corewire journal verify`.
pub fn verify(folder: &Path, json: bool) -> Result<()> {
    let (header, contents) = header::open(folder)?;
    let rounds = contents.rounds.len() as u64;
    let digest = match replayed(folder, &header, &contents, rounds) {
        Ok(mut method) => format!("{:016x}", state::digest(&mut *method)),
        Err(error) => return Err(error.context("every record is whole, but they cannot be replayed")),
    };
    let newest = Snapshot::newest(folder, rounds, &journal::run_id(&contents.header))?;
    if json {
        return out::json(&serde_json::json!({
            "rounds": rounds, "bytes": contents.whole_bytes, "torn_bytes": contents.torn_bytes,
            "digest": digest, "snapshot": newest.map(|snapshot| snapshot.round),
        }));
    }
    let bytes = contents.whole_bytes;
    out::line(&format!(
        "{rounds} rounds in {bytes} bytes, every record whole and chained; replayed to digest {digest}"
    ))?;
    if contents.torn_bytes > 0 {
        let torn = contents.torn_bytes;
        out::line(&format!("{torn} bytes at the end were being written when the run stopped; a resume cuts them off"))?;
    }
    match newest {
        Some(snapshot) => out::line(&format!("newest snapshot: after round {}", snapshot.round)),
        None => out::line("no snapshot yet: a resume begins at the start"),
    }
}
