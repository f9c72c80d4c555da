//! Standard output, to which writing may fail: a reader that has gone is an end, and a full disk an error.

use std::io::Write;

use anyhow::{Context, Result};

/// Writes a line.
pub fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    match written {
        // Who closed the pipe has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("cannot write to standard output"),
    }
}

/// Writes a JSON object in a line.
pub fn json(value: &serde_json::Value) -> Result<()> {
    line(&value.to_string())
}
