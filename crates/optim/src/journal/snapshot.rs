//! Snapshots: every machine's state after some round, as a safetensors file, so that a resume need not begin at the start.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use corewire_comm::Traffic;
use safetensors::tensor::{Dtype, SafeTensors, View};

use super::{JournalError, io_error};
use crate::state::Saved;

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
    /// f at the very start.
    pub initial: f64,
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
        Self { shape: [values.len()], bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect() }
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
        let traffic = &self.traffic;
        for word in
            [traffic.up_bytes, traffic.down_bytes, traffic.frame_bytes, traffic.trips, traffic.link_seconds.to_bits()]
        {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for (name, values) in &self.saved.fields {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&(values.len() as u64).to_le_bytes());
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
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
        let traffic = Traffic {
            up_bytes: word(&mut bytes)?,
            down_bytes: word(&mut bytes)?,
            frame_bytes: word(&mut bytes)?,
            trips: word(&mut bytes)?,
            link_seconds: f64::from_bits(word(&mut bytes)?),
        };
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
    let number = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        f64::from_le_bytes(word)
    };
    bytes.chunks_exact(8).map(number).collect()
}

impl Snapshot {
    /// The file of a round.
    pub fn path(folder: &Path, round: u64) -> PathBuf {
        folder.join(format!("snapshot-{round:012}.safetensors"))
    }

    /// Writes it to a temporary name, syncs, reads it back and renames; then removes all but the two newest.
    pub fn write(&self, folder: &Path) -> Result<(), JournalError> {
        let path = Self::path(folder, self.round);
        let temporary = path.with_extension("tmp");
        let bytes = self.to_bytes();
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

    /// The newest snapshot that is whole and not after round `most`.
    pub fn newest(folder: &Path, most: u64) -> Result<Option<Self>, JournalError> {
        for round in Self::list(folder)?.into_iter().rev().filter(|&round| round <= most) {
            let path = Self::path(folder, round);
            let bytes = fs::read(&path).map_err(io_error(&path))?;
            // A damaged snapshot costs only time: an older one, or the journal from its start, does as well.
            if let Ok(snapshot) = Self::from_bytes(&bytes) {
                return Ok(Some(snapshot));
            }
        }
        Ok(None)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut tensors = Vec::new();
        for (rank, machine) in self.machines.iter().enumerate() {
            for (index, (name, values)) in machine.saved.fields.iter().enumerate() {
                tensors.push((format!("{rank}/{index}/{name}"), Tensor::new(values)));
            }
            let traffic = &machine.traffic;
            let counts =
                [traffic.up_bytes, traffic.down_bytes, traffic.frame_bytes, traffic.trips].map(|count| count as f64);
            let counts = [counts.as_slice(), &[traffic.link_seconds]].concat();
            tensors.push((format!("{rank}/traffic"), Tensor::new(&counts)));
        }
        let mut hasher = hasher(self.round, self.initial, self.machines.len());
        for (name, tensor) in &tensors {
            hasher.update(name.as_bytes()).update(&tensor.bytes);
        }
        let about = HashMap::from([
            ("round".to_owned(), self.round.to_string()),
            ("initial".to_owned(), format!("{:016x}", self.initial.to_bits())),
            ("machines".to_owned(), self.machines.len().to_string()),
            ("digest".to_owned(), hasher.finalize().to_string()),
        ]);
        safetensors::serialize(tensors, Some(about)).expect("names are unique and shapes fit")
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let tensors = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
        let about = header.metadata().clone().ok_or("there is no metadata")?;
        let field = |name: &str| about.get(name).cloned().ok_or(format!("there is no `{name}`"));
        let round = field("round")?.parse::<u64>().map_err(|error| error.to_string())?;
        let initial = u64::from_str_radix(&field("initial")?, 16).map_err(|error| error.to_string())?;
        let count = field("machines")?.parse::<usize>().map_err(|error| error.to_string())?;
        let initial = f64::from_bits(initial);
        let mut machines = Vec::new();
        let mut hasher = hasher(round, initial, count);
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
            let [up, down, frame, trips, link_seconds] = numbers(tensor.data())[..] else {
                return Err(format!("`{name}` does not have five numbers"));
            };
            let traffic = Traffic {
                up_bytes: up as u64,
                down_bytes: down as u64,
                frame_bytes: frame as u64,
                trips: trips as u64,
                link_seconds,
            };
            machines.push(MachineState { saved, traffic });
        }
        if hasher.finalize().to_string() != field("digest")? {
            return Err("its digest does not fit".to_owned());
        }
        Ok(Self { round, initial, machines })
    }
}

/// The beginning of a snapshot's digest: the few numbers that stand beside the tensors.
fn hasher(round: u64, initial: f64, machines: usize) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    for word in [round, initial.to_bits(), machines as u64] {
        hasher.update(&word.to_le_bytes());
    }
    hasher
}

/// Writes a model as one tensor `x`, with a few words about it, to a temporary name first.
pub fn write_model(path: &Path, x: &[f64], about: HashMap<String, String>) -> Result<(), JournalError> {
    let bytes = safetensors::serialize([("x", Tensor::new(x))], Some(about)).expect("one tensor of a fitting shape");
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, bytes).map_err(io_error(&temporary))?;
    fs::rename(&temporary, path).map_err(io_error(path))
}

/// Reads such a model.
pub fn read_model(path: &Path) -> Result<(Vec<f64>, HashMap<String, String>), JournalError> {
    let bytes = fs::read(path).map_err(io_error(path))?;
    let wrong = |what: String| JournalError::Snapshot { path: path.to_owned(), what };
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| wrong(error.to_string()))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| wrong(error.to_string()))?;
    let tensor =
        tensors.tensor("x").map_err(|_| wrong("there is no tensor `x`; it is no model of corewire".to_owned()))?;
    if tensor.dtype() != Dtype::F64 {
        return Err(wrong("its tensor `x` does not hold 64-bit floats".to_owned()));
    }
    Ok((numbers(tensor.data()), header.metadata().clone().unwrap_or_default()))
}
