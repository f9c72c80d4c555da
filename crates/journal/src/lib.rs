//! The journal: a run is its start, its seed and the replies of every round, and the journal is that sequence.
//!
//! A folder holds `journal.bin`, an append-only file of chained records, and snapshots, so that resuming and replaying stay short. The seed
//! is never written.
//!
//! # The file
//! A magic line; then records. A record is its length (u32) and a checksum of the length (crc32c), its body, and eight bytes of the chain:
//! blake3 of the chain before it and the body. The first record's body is the header, any text; the others are a round's number (u64), the
//! number of replies (u32) and each reply as length (u32) and bytes. Numbers are little-endian. Round 2^64 - 1 stands for the preparation.
//!
//! A record that the end of the file cuts short was being written when the machine stopped: it is cut off. Anything else that does not fit
//! is damage, and is refused and named.

pub mod disk;
mod snapshot;
mod tensors;
mod values;

pub use snapshot::{MachineState, Saved, Snapshot, Stored};
pub use tensors::{
    About, Model, Tensor, Vectors, model_bytes, parse_model, read_model, read_tensors, write_model, write_tensors,
};
pub use values::Values;

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What can be wrong with a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system said no.
    #[error("{path}: {error}")]
    Io {
        /// Of which file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// The file is not a journal.
    #[error("{path}: this is not a corewire journal")]
    NoJournal {
        /// Which file.
        path: PathBuf,
    },
    /// A record in the middle does not fit.
    #[error(
        "{path}: damaged at byte {offset}, after {after}: {what}; restore the file from a copy, go on from before with \
         `--before {whole} --out NEW`, or begin again with `--restart --out NEW`"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The last thing that was whole.
        after: String,
        /// How many rounds are whole.
        whole: u64,
        /// What does not fit.
        what: &'static str,
    },
    /// A file beside the journal does not fit.
    #[error("{path}: {what}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// What the machines compute now is not what the journal says.
    #[error(
        "round {round} of the journal is not what the machines compute now: other data, another seed or another version"
    )]
    Mismatch {
        /// The first such round.
        round: u64,
    },
    /// There is no such round.
    #[error("the journal ends with round {last}; round {wanted} is not in it")]
    NoRound {
        /// What was asked for.
        wanted: u64,
        /// What there is.
        last: u64,
    },
}

pub(crate) fn io_error(path: &Path) -> impl Fn(io::Error) -> JournalError + '_ {
    move |error| JournalError::Io { path: path.to_owned(), error }
}

/// The chain before the first record.
const START: [u8; 8] = [0; 8];
const MAGIC: &[u8] = b"corewire journal 1\n";
/// The round's number under which the preparation is written.
pub const PREPARATION: u64 = u64::MAX;
/// Longer records are damage: no round of any method is that long.
const LONGEST: u32 = 1 << 30;

/// One round's replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundReplies {
    /// The round, or [`PREPARATION`].
    pub round: u64,
    /// What came back in each of its exchanges.
    pub replies: Vec<Arc<[u8]>>,
    /// The chain after it.
    pub link: [u8; 8],
}

/// A journal read from its file.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The header's text.
    pub header: String,
    /// The preparation's replies, if it got that far.
    pub preparation: Option<RoundReplies>,
    /// Rounds 0, 1, .. in order.
    pub rounds: Vec<RoundReplies>,
    /// Bytes of whole records; what follows was torn.
    pub whole_bytes: u64,
    /// Bytes that were cut off as torn.
    pub torn_bytes: u64,
    /// The chain at the end.
    pub chain: [u8; 8],
}

impl Contents {
    /// The chain after so many rounds; `None` where there are fewer.
    pub fn link_at(&self, rounds: u64) -> Option<[u8; 8]> {
        match rounds.checked_sub(1) {
            Some(last) => self.rounds.get(usize::try_from(last).ok()?).map(|entry| entry.link),
            None => {
                let prepared = self.preparation.as_ref().map(|entry| entry.link);
                Some(prepared.unwrap_or_else(|| link_of(&START, self.header.as_bytes())))
            }
        }
    }
}

/// What tells a run from all others: the first link of its journal's chain, which covers the header.
pub fn run_id(header: &str) -> String {
    hex(&link_of(&START, header.as_bytes()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a journal. A torn tail is left out, damage is refused.
pub fn read(path: &Path) -> Result<Contents, JournalError> {
    read_before(path, u64::MAX)
}

/// Reads the first rounds of a journal, at most so many, whatever follows.
pub fn read_before(path: &Path, rounds: u64) -> Result<Contents, JournalError> {
    parse_before(path, &std::fs::read(path).map_err(io_error(path))?, rounds)
}

/// Reads a journal from its bytes; `path` is only named in errors.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Contents, JournalError> {
    parse_before(path, bytes, u64::MAX)
}

fn parse_before(path: &Path, bytes: &[u8], most: u64) -> Result<Contents, JournalError> {
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        return Err(JournalError::NoJournal { path: path.to_owned() });
    };
    let mut chain = START;
    let mut contents: Option<Contents> = None;
    loop {
        let offset = (bytes.len() - rest.len()) as u64;
        let after = match &contents {
            None => "the magic line".to_owned(),
            Some(Contents { rounds, .. }) if rounds.is_empty() => "the header".to_owned(),
            Some(Contents { rounds, .. }) => format!("round {}", rounds.len() - 1),
        };
        let whole = contents.as_ref().map_or(0, |contents| contents.rounds.len() as u64);
        let damaged = |what| JournalError::Damaged { path: path.to_owned(), offset, after: after.clone(), whole, what };
        let torn = match take_record(rest) {
            _ if whole >= most => false,
            Record::End => false,
            Record::Torn => true,
            Record::Bad(what) => return Err(damaged(what)),
            Record::Whole { body, link, tail } => {
                let expected = link_of(&chain, body);
                if link != expected {
                    // The last record may have been written in part, whatever its length says.
                    if tail.is_empty() {
                        true
                    } else {
                        return Err(damaged("its checksum does not match"));
                    }
                } else {
                    chain = expected;
                    match &mut contents {
                        None => {
                            let header = std::str::from_utf8(body).map_err(|_| damaged("the header is no text"))?;
                            contents = Some(Contents {
                                header: header.to_owned(),
                                preparation: None,
                                rounds: Vec::new(),
                                whole_bytes: 0,
                                torn_bytes: 0,
                                chain,
                            });
                        }
                        Some(contents) => {
                            let entry = parse_entry(body, chain).ok_or_else(|| damaged("its body is no round"))?;
                            if entry.round == PREPARATION
                                && contents.preparation.is_none()
                                && contents.rounds.is_empty()
                            {
                                contents.preparation = Some(entry);
                            } else if entry.round == contents.rounds.len() as u64 {
                                contents.rounds.push(entry);
                            } else {
                                return Err(damaged("a round is missing or appears twice"));
                            }
                        }
                    }
                    rest = tail;
                    continue;
                }
            }
        };
        let Some(mut contents) = contents else {
            // Not even the header was written whole: nothing has happened yet.
            return Err(JournalError::NoJournal { path: path.to_owned() });
        };
        contents.whole_bytes = offset;
        contents.torn_bytes = if torn { rest.len() as u64 } else { 0 };
        contents.chain = chain;
        return Ok(contents);
    }
}

enum Record<'a> {
    End,
    Torn,
    Bad(&'static str),
    Whole { body: &'a [u8], link: [u8; 8], tail: &'a [u8] },
}

fn take_record(bytes: &[u8]) -> Record<'_> {
    if bytes.is_empty() {
        return Record::End;
    }
    // A file system may leave zeros where the last write did not arrive.
    if bytes.iter().all(|&byte| byte == 0) {
        return Record::Torn;
    }
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Record::Torn };
    let Some((checksum, rest)) = rest.split_first_chunk::<4>() else { return Record::Torn };
    if crc32c::crc32c(length) != u32::from_le_bytes(*checksum) {
        return Record::Bad("the length of a record does not fit its checksum");
    }
    let length = u32::from_le_bytes(*length);
    if length > LONGEST {
        return Record::Bad("a record is longer than any round");
    }
    let Some((body, rest)) = rest.split_at_checked(length as usize) else { return Record::Torn };
    let Some((link, tail)) = rest.split_first_chunk::<8>() else { return Record::Torn };
    Record::Whole { body, link: *link, tail }
}

fn link_of(chain: &[u8; 8], body: &[u8]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(chain).update(body);
    let mut link = [0; 8];
    link.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    link
}

fn parse_entry(body: &[u8], link: [u8; 8]) -> Option<RoundReplies> {
    let (round, rest) = body.split_first_chunk::<8>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut replies = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (reply, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        replies.push(Arc::from(reply));
        rest = tail;
    }
    rest.is_empty().then_some(RoundReplies { round: u64::from_le_bytes(*round), replies, link })
}

fn write_entry(round: u64, replies: &[Arc<[u8]>]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&round.to_le_bytes());
    body.extend_from_slice(&(replies.len() as u32).to_le_bytes());
    for reply in replies {
        body.extend_from_slice(&(reply.len() as u32).to_le_bytes());
        body.extend_from_slice(reply);
    }
    body
}

/// A record with this body, and the chain after it.
pub fn sealed(chain: &[u8; 8], body: &[u8]) -> (Vec<u8>, [u8; 8]) {
    let link = link_of(chain, body);
    let length = (body.len() as u32).to_le_bytes();
    let mut record = Vec::with_capacity(body.len() + 16);
    record.extend_from_slice(&length);
    record.extend_from_slice(&crc32c::crc32c(&length).to_le_bytes());
    record.extend_from_slice(body);
    record.extend_from_slice(&link);
    (record, link)
}

/// An open journal, at its end.
pub struct Journal {
    path: PathBuf,
    file: File,
    chain: [u8; 8],
    /// Bytes of whole records.
    length: u64,
}

impl Journal {
    /// A new journal, which must not exist yet; it appears with its header, or not at all.
    pub fn create(path: &Path, header: &str) -> Result<Self, JournalError> {
        if path.exists() {
            return Err(io_error(path)(io::ErrorKind::AlreadyExists.into()));
        }
        let (record, chain) = sealed(&START, header.as_bytes());
        let bytes = [MAGIC, &record].concat();
        disk::write_whole(path, &bytes)?;
        Self::open(path, chain, bytes.len() as u64)
    }

    /// Goes on with a journal that was just read; its torn tail is cut off.
    pub fn reopen(path: &Path, contents: &Contents) -> Result<Self, JournalError> {
        Self::open(path, contents.chain, contents.whole_bytes)
    }

    fn open(path: &Path, chain: [u8; 8], length: u64) -> Result<Self, JournalError> {
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.set_len(length)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        Ok(Self { path: path.to_owned(), file: open().map_err(io_error(path))?, chain, length })
    }

    /// The chain at the end.
    pub fn chain(&self) -> [u8; 8] {
        self.chain
    }

    /// Appends a round. On an error nothing of it is left behind, so that the same round can be appended again.
    pub fn append(&mut self, round: u64, replies: &[Arc<[u8]>]) -> Result<(), JournalError> {
        self.append_body(&write_entry(round, replies))
    }

    fn append_body(&mut self, body: &[u8]) -> Result<(), JournalError> {
        let (record, link) = sealed(&self.chain, body);
        if let Err(error) = self.file.write_all(&record) {
            // A full disk may have taken a part: take it back.
            let _ = self.file.set_len(self.length);
            let _ = self.file.seek(SeekFrom::Start(self.length));
            return Err(io_error(&self.path)(error));
        }
        self.length += record.len() as u64;
        self.chain = link;
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(io_error(&self.path))
    }
}
