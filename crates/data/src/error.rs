//! What can be wrong with a file or with the labels in it, and where.

use std::path::{Path, PathBuf};

/// Why a data set could not be read, written or relabelled.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system refused.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// The file concerned.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line of a text file is wrong.
    #[error("`{}` line {line}: {what}", path.display())]
    Line {
        /// The file concerned.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A byte of a binary file is wrong.
    #[error("`{}` byte {offset}: {what}", path.display())]
    Byte {
        /// The file concerned.
        path: PathBuf,
        /// The position, counted from 0.
        offset: usize,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A file as a whole is wrong.
    #[error("`{}`: {what}", path.display())]
    File {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A download failed.
    #[error("cannot fetch `{url}`: {what}")]
    Fetch {
        /// The address.
        url: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The labels of a data set do not suit the question asked of them.
    #[error("data set `{name}`: {what}")]
    Labels {
        /// The data set's name.
        name: String,
        /// What is wrong, and what to do.
        what: String,
    },
}

impl DataError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn line(path: &Path, line: usize, what: impl Into<String>) -> Self {
        Self::Line { path: path.to_owned(), line, what: what.into() }
    }

    pub(crate) fn byte(path: &Path, offset: usize, what: impl Into<String>) -> Self {
        Self::Byte { path: path.to_owned(), offset, what: what.into() }
    }

    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), what: what.into() }
    }
}

/// A piece of a file that may be anything, safe to print: its first 40 bytes at most, escaped. What looks like the better part of a
/// secret is not shown at all.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const LIMIT: usize = 40;
    const SECRET: usize = 24;
    if bytes.len() >= SECRET
        && bytes[..SECRET].iter().all(u8::is_ascii_hexdigit)
        && !bytes.iter().all(u8::is_ascii_digit)
    {
        return format!("({} bytes, not shown)", bytes.len());
    }
    let head = bytes[..bytes.len().min(LIMIT)].escape_ascii();
    if bytes.len() > LIMIT { format!("{head}...") } else { head.to_string() }
}
