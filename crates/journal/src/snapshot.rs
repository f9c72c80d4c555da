//! Snapshots: the state after some round, what is common once and what is each machine's own, as a safetensors file, so that a resume need
//! not begin at the start.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use corewire_comm::Traffic;
use corewire_comm::numbers::push;

use crate::disk::write_whole_with;
use crate::tensors::{About, decode, encode};
use crate::values::Values;
use crate::{Contents, JournalError, hex, io_error};

/// Fields of a method's state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Saved {
    /// In the order of the visit.
    pub fields: Vec<(String, Values)>,
}

/// One machine's part.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MachineState {
    /// The method's fields that are this machine's own.
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
    /// What all machines have the same.
    pub common: Saved,
    /// In rank order.
    pub machines: Vec<MachineState>,
}

/// A snapshot from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// What it holds.
    pub snapshot: Snapshot,
    /// What it says of the run that it belongs to.
    pub about: About,
    /// The journal's chain after the snapshot's round, in hexadecimal digits.
    pub link: String,
}

impl MachineState {
    /// As bytes, for the way to machine 0.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&self.traffic.to_words(), &mut bytes);
        for (name, values) in &self.saved.fields {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(values.width() as u8);
            push(&[values.len() as u64], &mut bytes);
            values.pieces().for_each(|piece| bytes.extend_from_slice(&piece));
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
            let (&width, rest) = rest.split_first()?;
            bytes = rest;
            let count = word(&mut bytes)?;
            let (values, rest) = bytes.split_at_checked(usize::try_from(count).ok()?.checked_mul(width as usize)?)?;
            bytes = rest;
            fields.push((String::from_utf8(name.to_vec()).ok()?, Values::read(values, width as usize)?));
        }
        Some(Self { saved: Saved { fields }, traffic })
    }
}

/// The words of a snapshot's file that are not about its run.
const ROUND: &str = "round";
const LINK: &str = "chain";
const INITIAL: &str = "initial";
const FIRST: [&str; 2] = ["first_gradient", "first_gap"];
const MACHINES: &str = "machines_saved";
/// In place of a rank: what all machines have the same.
const COMMON: &str = "common";
/// In place of a field: what had passed.
const TRAFFIC: &str = "traffic";

impl Snapshot {
    /// The file of a round.
    pub fn path(folder: &Path, round: u64) -> PathBuf {
        folder.join(format!("snapshot-{round:012}.safetensors"))
    }

    /// Writes it, whole or not at all; then removes all but the two newest.
    ///
    /// `about` says which run it belongs to, `link` is the chain of its journal after its round.
    pub fn write(&self, folder: &Path, about: &About, link: [u8; 8]) -> Result<(), JournalError> {
        write_whole_with(&Self::path(folder, self.round), |out| self.encode(about, link, out))?;
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
        rounds.dedup();
        Ok(rounds)
    }

    /// The bytes of its file.
    pub fn to_bytes(&self, about: &About, link: [u8; 8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(about, link, &mut bytes).expect("memory takes all bytes");
        bytes
    }

    fn encode(&self, about: &About, link: [u8; 8], out: &mut dyn Write) -> io::Result<()> {
        fn add<'a>(tensors: &mut BTreeMap<String, &'a Values>, whose: &str, saved: &'a Saved) {
            for (index, (name, values)) in saved.fields.iter().enumerate() {
                tensors.insert(format!("{whose}/{index}/{name}"), values);
            }
        }
        // Bits of words: a vector of floats carries them unchanged.
        let words = |machine: &MachineState| Values::Wide(machine.traffic.to_words().map(f64::from_bits).to_vec());
        let traffic: Vec<Values> = self.machines.iter().map(words).collect();
        let mut tensors = BTreeMap::new();
        add(&mut tensors, COMMON, &self.common);
        for (rank, (machine, traffic)) in self.machines.iter().zip(&traffic).enumerate() {
            add(&mut tensors, &rank.to_string(), &machine.saved);
            tensors.insert(format!("{rank}/{TRAFFIC}"), traffic);
        }
        let bits = |number: Option<f64>| format!("{:016x}", number.unwrap_or(f64::NAN).to_bits());
        let mut about = about.clone();
        about.extend([
            (ROUND.to_owned(), self.round.to_string()),
            (LINK.to_owned(), hex(&link)),
            (INITIAL.to_owned(), bits(self.initial)),
            (FIRST[0].to_owned(), bits(self.first[0])),
            (FIRST[1].to_owned(), bits(self.first[1])),
            (MACHINES.to_owned(), self.machines.len().to_string()),
        ]);
        encode(&tensors, &about, out)
    }
}

impl Stored {
    /// Reads the snapshot of a round. What is wrong with it is an error that names the file.
    pub fn read(folder: &Path, round: u64) -> Result<Self, JournalError> {
        let path = Snapshot::path(folder, round);
        let bytes = fs::read(&path).map_err(io_error(&path))?;
        Self::parse(&bytes).map_err(|what| JournalError::File { path, what })
    }

    /// From the bytes of a file, or what is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (tensors, mut about) = decode(bytes)?;
        let mut word = |name: &str| about.remove(name).ok_or(format!("there is no `{name}`"));
        let round = word(ROUND)?.parse::<u64>().map_err(|error| format!("`{ROUND}`: {error}"))?;
        let link = word(LINK)?;
        let mut number = |name: &str| -> Result<Option<f64>, String> {
            let bits = u64::from_str_radix(&word(name)?, 16).map_err(|error| format!("`{name}`: {error}"))?;
            Ok(Some(f64::from_bits(bits)).filter(|number| !number.is_nan()))
        };
        let (initial, first) = (number(INITIAL)?, [number(FIRST[0])?, number(FIRST[1])?]);
        let count = word(MACHINES)?.parse::<usize>().map_err(|error| format!("`{MACHINES}`: {error}"))?;
        /// A machine's fields by their places, and its traffic.
        type Part = (BTreeMap<usize, (String, Values)>, Option<Traffic>);
        let (mut common, mut machines) = (BTreeMap::new(), BTreeMap::<usize, Part>::new());
        for (name, values) in tensors {
            let place = || format!("`{name}` is no field of a machine, nor of all");
            let (whose, rest) = name.split_once('/').ok_or_else(place)?;
            let fields = if whose == COMMON {
                &mut common
            } else {
                let machine = machines.entry(whose.parse().map_err(|_| place())?).or_default();
                if rest == TRAFFIC {
                    let words: Vec<u64> = values.to_wide().iter().map(|value| value.to_bits()).collect();
                    let words = words.try_into().map_err(|_| format!("`{name}` does not have eight words"))?;
                    machine.1 = Some(Traffic::from_words(words));
                    continue;
                }
                &mut machine.0
            };
            let (index, field) = rest.split_once('/').ok_or_else(place)?;
            fields.insert(index.parse().map_err(|_| place())?, (field.to_owned(), values));
        }
        if machines.len() != count || machines.keys().next_back().is_some_and(|last| last + 1 != count) {
            return Err(format!("it has fields of {} machines and is one of {count}", machines.len()));
        }
        let whole = |(rank, (fields, traffic)): (usize, Part)| {
            let traffic = traffic.ok_or(format!("there is no `{rank}/traffic`"))?;
            Ok(MachineState { saved: Saved { fields: fields.into_values().collect() }, traffic })
        };
        let machines = machines.into_iter().map(whole).collect::<Result<_, String>>()?;
        let common = Saved { fields: common.into_values().collect() };
        Ok(Self { snapshot: Snapshot { round, initial, first, common, machines }, about, link })
    }

    /// Refuses a snapshot that lies under another round's name, or does not belong where this journal has its round.
    pub fn check(&self, folder: &Path, named: u64, contents: &Contents) -> Result<(), JournalError> {
        let (round, last) = (self.snapshot.round, contents.rounds.len() as u64);
        let what = match contents.link_at(round) {
            _ if round != named => format!("its `round` is {round}, and its name says {named}; take it away"),
            None => format!(
                "its `round` is {round}, and journal.bin ends with {last}: rounds were lost; restore journal.bin, or go on from \
                 before with `--before {last}`"
            ),
            Some(link) if hex(&link) != self.link => {
                format!(
                    "its `chain` is {}, and journal.bin has {} after round {round}; take it away",
                    self.link,
                    hex(&link)
                )
            }
            Some(_) => return Ok(()),
        };
        Err(JournalError::File { path: Snapshot::path(folder, named), what })
    }
}
