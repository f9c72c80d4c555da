//! `corewire replay` and `corewire journal verify`: a run again, from its journal alone.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use corewire_journal::{self as journal, Stored};
use corewire_optim::catalogue::{self, Request};
use corewire_optim::method::Method;
use corewire_optim::{RunError, replay, state};
use corewire_sketch::CommonRandomness;

use crate::earlier::Earlier;
use crate::{job, out, session};

/// What a replay of a run begins with: makes its method, fresh, as often as it is asked.
fn methods(earlier: &Earlier, start: Option<&Path>) -> Result<impl Fn() -> Result<Box<dyn Method>>> {
    let job = earlier.job(&[])?;
    if job.graph.as_ref().is_some_and(job::GraphSpec::gossips) {
        bail!("a run by gossip has no common state and cannot be replayed; with `graph.gossip` = \"tree\" it could be");
    }
    let header = &earlier.header;
    let seed = session::seed(&job)?;
    header.check_seed(&seed)?;
    let (facts, constants) = (header.facts(), header.constants()?);
    let start = start.map_or_else(|| earlier.start(), |path| earlier.start_from(path))?;
    if start.len() != facts.dim {
        bail!("the start has {} coordinates and the journal {}", start.len(), facts.dim);
    }
    let info = catalogue::find(&header.method).map_err(|error| anyhow!(error))?;
    let randomness = CommonRandomness::new(&seed);
    Ok(move || {
        let request = Request {
            info,
            parameters: &job.method.parameters,
            settings: &job.method.settings,
            start: &start,
            constants: &constants,
            quadratic: facts.quadratic,
            randomness: &randomness,
            shipment: None,
        };
        catalogue::build(&request, None).map_err(|error| anyhow!(error))
    })
}

/// `corewire replay`.
pub fn replay(folder: &Path, to: Option<u64>, start: Option<&Path>, path: &Path, json: bool) -> Result<()> {
    let earlier = Earlier::open(folder)?;
    let rounds = to.unwrap_or(earlier.contents.rounds.len() as u64);
    let mut method = methods(&earlier, start)?()?;
    replay::replay(&mut *method, &earlier.contents, earlier.header.facts(), rounds)?;
    let digest = digest_of(&mut *method);
    // What the run's own model says of rows and classes holds for this one too.
    let own = journal::read_model(&folder.join("model.safetensors")).ok();
    let (mut vectors, mut about) = own.unwrap_or_default();
    vectors.insert("x".to_owned(), method.iterate().to_vec());
    about.extend(earlier.about());
    about.extend(
        [
            ("rounds", rounds.to_string()),
            ("digest", digest.clone()),
            ("job", earlier.job(&[])?.portable(path.parent().unwrap_or(Path::new("")))),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    journal::write_model(path, &(vectors, about))?;
    if json {
        return out::json(&serde_json::json!({ "rounds": rounds, "digest": digest, "model": path }));
    }
    out::line(&format!("replayed {rounds} rounds from {} without data; digest {digest}", folder.display()))?;
    out::line(&format!("the model is in {}", path.display()))
}

fn digest_of(method: &mut dyn Method) -> String {
    format!("{:016x}", state::digest(method))
}

/// What was looked at in a run's folder, in words.
#[derive(Default)]
struct Findings {
    digest: Option<String>,
    checked: Vec<String>,
    not_checked: Vec<String>,
}

/// `corewire journal verify`.
pub fn verify(folder: &Path, json: bool) -> Result<()> {
    let earlier = Earlier::open(folder)?;
    let contents = &earlier.contents;
    let rounds = contents.rounds.len() as u64;
    let mut found = Findings::default();
    found
        .checked
        .push(format!("journal.bin: {rounds} rounds in {} bytes, whole, chained and in order", contents.whole_bytes));
    earlier.start()?;
    found.checked.push("start.safetensors: the point where this run began".to_owned());
    let snapshots = earlier.snapshots(false)?;
    if let Some(damaged) = snapshots.damaged.into_iter().next() {
        return Err(damaged.into());
    }
    let others = earlier.check_others()?;
    for (file, what) in [("job.toml", "the job of this run"), ("rounds.csv", "lines of this run")] {
        match others.contains(&file) {
            true => found.checked.push(format!("{file}: {what}")),
            false => found.not_checked.push(format!("{file}: it is not there")),
        }
    }
    let gossips = earlier.job(&[])?.graph.as_ref().is_some_and(job::GraphSpec::gossips);
    match (contents.preparation.is_none() && rounds == 0, gossips) {
        (true, _) => {
            found
                .not_checked
                .push("replies: the run was stopped before its preparation was over, so there are none".to_owned());
        }
        (_, true) => found.not_checked.push("replies: a run by gossip has no common state to replay".to_owned()),
        _ => follow(&earlier, &snapshots.whole, &mut found)?,
    }
    if snapshots.whole.is_empty() {
        found.not_checked.push("snapshots: there is none yet, a resume begins at the start".to_owned());
    }
    found.not_checked.extend([
        format!("rows: a resume compares the digests of all {} machines' rows", earlier.header.facts().machines),
        "values, bytes and seconds in rounds.csv, and the machines' own states in snapshots: nothing here tells them"
            .to_owned(),
    ]);
    let newest = snapshots.whole.first().map(|stored| stored.snapshot.round);
    if json {
        return out::json(&serde_json::json!({
            "rounds": rounds, "bytes": contents.whole_bytes, "torn_bytes": contents.torn_bytes, "digest": found.digest,
            "snapshot": newest, "checked": found.checked, "not_checked": found.not_checked,
        }));
    }
    if let Some(digest) = &found.digest {
        out::line(&format!("{rounds} rounds, replayed to digest {digest}"))?;
    }
    if contents.torn_bytes > 0 {
        let torn = contents.torn_bytes;
        out::line(&format!("{torn} bytes at the end were being written when the run stopped; a resume cuts them off"))?;
    }
    let list = |title: &str, lines: &[String]| format!("{title}:\n  {}", lines.join("\n  "));
    out::line(&list("checked", &found.checked))?;
    out::line(&list("not checked", &found.not_checked))
}

/// Replays a run, and compares every snapshot and the model with it on the way.
fn follow(earlier: &Earlier, snapshots: &[Stored], found: &mut Findings) -> Result<()> {
    let (contents, facts) = (&earlier.contents, earlier.header.facts());
    let rounds = contents.rounds.len() as u64;
    let fresh = methods(earlier, None)?;
    let mut method = fresh()?;
    let unclear = "every record is whole, but they cannot be replayed";
    replay::prepare(&mut *method, contents, facts).context(unclear)?;
    let mut done = 0;
    let mut go_to = |method: &mut dyn Method, round: u64| -> Result<()> {
        replay::advance(method, contents, facts, done..round).context(unclear)?;
        done = round;
        Ok(())
    };
    let model = journal::read_model(&earlier.folder.join("model.safetensors")).ok();
    let model_round = model.as_ref().and_then(|(_, about)| about.get("rounds")?.parse::<u64>().ok());
    let mut stops: Vec<u64> =
        snapshots.iter().map(|stored| stored.snapshot.round).chain(model_round).chain([rounds]).collect();
    stops.sort_unstable();
    stops.dedup();
    for round in stops {
        if round > rounds {
            bail!(
                "model.safetensors: its `rounds` are {round}, and journal.bin ends with {rounds}: rounds were lost; restore journal.bin"
            );
        }
        go_to(&mut *method, round)?;
        let digest = digest_of(&mut *method);
        if let Some(stored) = snapshots.iter().find(|stored| stored.snapshot.round == round) {
            let name = journal::Snapshot::path(Path::new(""), round);
            for machine in &stored.snapshot.machines {
                let mut restored = fresh()?;
                replay::prepare(&mut *restored, contents, facts)?;
                state::restore(&mut *restored, &stored.snapshot.common, &machine.saved)
                    .map_err(RunError::Unsuited)
                    .with_context(|| name.display().to_string())?;
                if digest_of(&mut *restored) != digest {
                    bail!("{}: its common `state` is not where journal.bin leads to; take it away", name.display());
                }
            }
            found.checked.push(format!(
                "{}: whole, of this run, and its common state is where the replies lead",
                name.display()
            ));
        }
        if let Some((vectors, about)) = model.as_ref().filter(|_| model_round == Some(round)) {
            if about.get("digest") != Some(&digest) || vectors["x"] != method.iterate() {
                bail!(
                    "model.safetensors: its `digest` is not the one after round {round}, {digest}; replay the run to make it again"
                );
            }
            found.checked.push(format!("model.safetensors: the model after round {round} of {rounds}"));
        }
        found.digest = Some(digest);
    }
    if model.is_none() {
        found.not_checked.push("model.safetensors: it is not there".to_owned());
    }
    Ok(())
}
