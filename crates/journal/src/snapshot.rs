//! Snapshots: every machine's state after some round, as a safetensors file, so that a resume need not begin at the start.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use corewire_comm::Traffic;
use corewire_comm::numbers::{push, read, to_bytes};
use safetensors::tensor::{Dtype, SafeTensors, View};

use crate::{JournalError, io_error};

/// The fields of a method's state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Saved {
    /// In the order of the visit.
    pub fields: Vec<(String, Vec<f64>)>,
}

/// One machine's part.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MachineState {
    /// The method's fields.
    pub saved: Saved,
    /// What had passed.
    pub traffic: Traffic,
}

/// All machines after `round` rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Rounds done.
    pub round: u64,
    /// f at the very start, where it is known.
    pub initial: Option<f64>,
    /// The first estimates of the gradient's norm and of f - f*, likewise.
    pub first: [Option<f64>; 2],
    /// In rank order.
    pub machines: Vec<MachineState>,
}

/// A vector as a tensor.
struct Tensor {
    shape: [usize; 1],
    bytes: Vec<u8>,
}

impl Tensor {
    fn new(values: &[f64]) -> Self {
        Self { shape: [values.len()], bytes: to_bytes(values) }
    }
}

impl View for Tensor {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

impl MachineState {
    /// As bytes, for the way to machine 0.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&self.traffic.to_words(), &mut bytes);
        for (name, values) in &self.saved.fields {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
            push(&[values.len() as u64], &mut bytes);
            push(values, &mut bytes);
        }
        bytes
    }

    /// From those bytes; `None` if they are not such.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        fn word(bytes: &mut &[u8]) -> Option<u64> {
            let (word, rest) = bytes.split_first_chunk::<8>()?;
            *bytes = rest;
            Some(u64::from_le_bytes(*word))
        }
        let mut words = [0; 8];
        for count in &mut words {
            *count = word(&mut bytes)?;
        }
        let traffic = Traffic::from_words(words);
        let mut fields = Vec::new();
        while let Some((&length, rest)) = bytes.split_first() {
            let (name, rest) = rest.split_at_checked(length as usize)?;
            bytes = rest;
            let count = word(&mut bytes)?;
            let (values, rest) = bytes.split_at_checked(usize::try_from(count).ok()?.checked_mul(8)?)?;
            bytes = rest;
            fields.push((String::from_utf8(name.to_vec()).ok()?, numbers(values)));
        }
        Some(Self { saved: Saved { fields }, traffic })
    }
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    read(bytes).collect()
}

impl Snapshot {
    /// The file of a round.
    pub fn path(folder: &Path, round: u64) -> PathBuf {
        folder.join(format!("snapshot-{round:012}.safetensors"))
    }

    /// Writes it to a temporary name, syncs, reads it back and renames; then removes all but the two newest.
    ///
    /// `run` is the id of the run that it belongs to.
    pub fn write(&self, folder: &Path, run: &str) -> Result<(), JournalError> {
        let path = Self::path(folder, self.round);
        let temporary = path.with_extension("tmp");
        let bytes = self.to_bytes(run);
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&temporary);
            io_error(&temporary)(error)
        })?;
        let again = fs::read(&temporary).map_err(io_error(&temporary))?;
        if again != bytes {
            let what = "what was read back is not what was written".to_owned();
            return Err(JournalError::Snapshot { path: temporary, what });
        }
        fs::rename(&temporary, &path).map_err(io_error(&path))?;
        for old in Self::list(folder)?.into_iter().rev().skip(2) {
            let _ = fs::remove_file(Self::path(folder, old));
        }
        Ok(())
    }

    /// The rounds of the snapshots in a folder, ascending.
    pub fn list(folder: &Path) -> Result<Vec<u64>, JournalError> {
        let mut rounds = Vec::new();
        for entry in fs::read_dir(folder).map_err(io_error(folder))? {
            let name = entry.map_err(io_error(folder))?.file_name();
            let name = name.to_string_lossy();
            let round = name.strip_prefix("snapshot-").and_then(|name| name.strip_suffix(".safetensors"));
            rounds.extend(round.and_then(|round| round.parse::<u64>().ok()));
        }
        rounds.sort_unstable();
        Ok(rounds)
    }

    /// The newest snapshot of this run that is whole and not after round `most`. One of another run, or of another round than its name says, is
    /// refused: somebody put it there.
    pub fn newest(folder: &Path, most: u64, run: &str) -> Result<Option<Self>, JournalError> {
        for round in Self::list(folder)?.into_iter().rev().filter(|&round| round <= most) {
            let path = Self::path(folder, round);
            let bytes = fs::read(&path).map_err(io_error(&path))?;
            // A damaged snapshot costs only time: an older one, or the journal from its start, does as well.
            let Ok((snapshot, of)) = Self::from_bytes(&bytes) else { continue };
            let foreign = if of != run {
                Some(format!("it belongs to run {of}, and the journal beside it to run {run}"))
            } else if snapshot.round != round {
                Some(format!("it is of round {}, and its name says {round}", snapshot.round))
            } else {
                None
            };
            match foreign {
                None => return Ok(Some(snapshot)),
                Some(what) => return Err(JournalError::Snapshot { path, what: format!("{what}; take it away") }),
            }
        }
        Ok(None)
    }

    fn to_bytes(&self, run: &str) -> Vec<u8> {
        let mut tensors = Vec::new();
        for (rank, machine) in self.machines.iter().enumerate() {
            for (index, (name, values)) in machine.saved.fields.iter().enumerate() {
                tensors.push((format!("{rank}/{index}/{name}"), Tensor::new(values)));
            }
            // Bits of words: a tensor of floats carries them unchanged.
            tensors.push((format!("{rank}/traffic"), Tensor::new(&machine.traffic.to_words().map(f64::from_bits))));
        }
        let mut hasher = hasher(self.round, self.initial, self.first, self.machines.len());
        hasher.update(run.as_bytes());
        for (name, tensor) in &tensors {
            hasher.update(name.as_bytes()).update(&tensor.bytes);
        }
        let about = HashMap::from([
            ("round".to_owned(), self.round.to_string()),
            ("run".to_owned(), run.to_owned()),
            ("initial".to_owned(), format!("{:016x}", bits(self.initial))),
            ("first_gradient".to_owned(), format!("{:016x}", bits(self.first[0]))),
            ("first_gap".to_owned(), format!("{:016x}", bits(self.first[1]))),
            ("machines".to_owned(), self.machines.len().to_string()),
            ("digest".to_owned(), hasher.finalize().to_string()),
        ]);
        safetensors::serialize(tensors, Some(about)).expect("names are unique and shapes fit")
    }

    fn from_bytes(bytes: &[u8]) -> Result<(Self, String), String> {
        let tensors = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
        let about = header.metadata().clone().ok_or("there is no metadata")?;
        let field = |name: &str| about.get(name).cloned().ok_or(format!("there is no `{name}`"));
        let round = field("round")?.parse::<u64>().map_err(|error| error.to_string())?;
        let number = |name: &str| -> Result<Option<f64>, String> {
            let bits = u64::from_str_radix(&field(name)?, 16).map_err(|error| error.to_string())?;
            Ok(Some(f64::from_bits(bits)).filter(|number| !number.is_nan()))
        };
        let (initial, first) = (number("initial")?, [number("first_gradient")?, number("first_gap")?]);
        let count = field("machines")?.parse::<usize>().map_err(|error| error.to_string())?;
        let mut machines = Vec::new();
        let run = field("run")?;
        let mut hasher = hasher(round, initial, first, count);
        hasher.update(run.as_bytes());
        let names = tensors.names();
        for rank in 0..count.min(names.len()) {
            let prefix = format!("{rank}/");
            let mut fields: Vec<(usize, String)> = names
                .iter()
                .filter_map(|name| {
                    let (index, field) = name.strip_prefix(&prefix)?.split_once('/')?;
                    Some((index.parse().ok()?, field.to_owned()))
                })
                .collect();
            fields.sort();
            let mut saved = Saved::default();
            for (index, field) in fields {
                let name = format!("{rank}/{index}/{field}");
                let tensor = tensors.tensor(&name).map_err(|error| error.to_string())?;
                hasher.update(name.as_bytes()).update(tensor.data());
                saved.fields.push((field, numbers(tensor.data())));
            }
            let name = format!("{rank}/traffic");
            let tensor = tensors.tensor(&name).map_err(|error| error.to_string())?;
            hasher.update(name.as_bytes()).update(tensor.data());
            let words: Vec<u64> = read(tensor.data()).collect();
            let words = words.try_into().map_err(|_| format!("`{name}` does not have eight words"))?;
            let traffic = Traffic::from_words(words);
            machines.push(MachineState { saved, traffic });
        }
        if hasher.finalize().to_string() != field("digest")? {
            return Err("its digest does not match".to_owned());
        }
        Ok((Self { round, initial, first, machines }, run))
    }
}

/// What is not known is not a number.
fn bits(number: Option<f64>) -> u64 {
    number.unwrap_or(f64::NAN).to_bits()
}

/// The beginning of a snapshot's digest: the few numbers that stand beside the tensors.
fn hasher(round: u64, initial: Option<f64>, first: [Option<f64>; 2], machines: usize) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    for word in [round, bits(initial), bits(first[0]), bits(first[1]), machines as u64] {
        hasher.update(&word.to_le_bytes());
    }
    hasher
}

/// Named vectors, and a few words about them.
pub type Model = (BTreeMap<String, Vec<f64>>, BTreeMap<String, String>);

/// Writes a model: named vectors and words about them, to a temporary name first.
pub fn write_model(path: &Path, (vectors, about): &Model) -> Result<(), JournalError> {
    let tensors = vectors.iter().map(|(name, values)| (name, Tensor::new(values)));
    let about = about.clone().into_iter().collect();
    let bytes = safetensors::serialize(tensors, Some(about)).expect("vectors of fitting shapes");
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, bytes).map_err(io_error(&temporary))?;
    fs::rename(&temporary, path).map_err(io_error(path))
}

/// Reads such a model; its vector `x` is there.
pub fn read_model(path: &Path) -> Result<Model, JournalError> {
    let bytes = fs::read(path).map_err(io_error(path))?;
    let wrong = |what: String| JournalError::Snapshot { path: path.to_owned(), what };
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| wrong(error.to_string()))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| wrong(error.to_string()))?;
    let mut vectors = BTreeMap::new();
    for (name, tensor) in tensors.tensors() {
        if tensor.dtype() != Dtype::F64 {
            return Err(wrong(format!("its tensor `{name}` does not hold 64-bit floats")));
        }
        vectors.insert(name, numbers(tensor.data()));
    }
    if !vectors.contains_key("x") {
        return Err(wrong("there is no tensor `x`; it is not a corewire model".to_owned()));
    }
    Ok((vectors, header.metadata().clone().unwrap_or_default().into_iter().collect()))
}
