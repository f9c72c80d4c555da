//! Standard output and standard error, to which writing may fail: a reader that has gone has seen enough, and a full disk is an error.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

/// Writes a line. Nobody is told that a reader has gone: the command goes on to its end, and its exit code stays what it is.
pub fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// Writes a JSON object in a line.
pub fn json(value: &serde_json::Value) -> Result<()> {
    line(&value.to_string())
}

/// Writes a line, or ends the process where it cannot be written.
pub fn line_or_exit(text: &str) {
    if let Err(error) = line(text) {
        complain(&format!("corewire: {error:#}"));
        std::process::exit(1);
    }
}

/// Writes a line to standard error. Where that fails there is nobody left to tell.
pub fn complain(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// The standard library's panics where a line cannot be written.
macro_rules! println {
    ($($words:tt)*) => { $crate::out::line_or_exit(&format!($($words)*)) };
}

/// Likewise.
macro_rules! eprintln {
    ($($words:tt)*) => { $crate::out::complain(&format!($($words)*)) };
}
