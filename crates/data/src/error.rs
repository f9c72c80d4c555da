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

/// A piece of a hostile file, safe to print: at most 32 characters, with control characters escaped.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const LIMIT: usize = 32;
    let head = &bytes[..bytes.len().min(4 * LIMIT)];
    let text = String::from_utf8_lossy(head);
    let mut out = String::new();
    let mut characters = text.chars();
    for character in characters.by_ref().take(LIMIT) {
        if character.is_control() {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    if characters.next().is_some() || head.len() < bytes.len() {
        out.push_str("...");
    }
    out
}
