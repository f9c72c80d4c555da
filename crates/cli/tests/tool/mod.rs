//! What the tests of this folder share: the binary, its JSON, and children that are stopped in the middle.
#![allow(dead_code)]

use std::path::Path;
use std::process::{Child, Stdio};

use assert_cmd::Command;
use serde_json::Value;

pub const BINARY: &str = env!("CARGO_BIN_EXE_corewire");

/// The binary, with a cache of the tests' own.
pub fn corewire(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    command
}

/// Runs it, asks for success, and returns what it printed.
pub fn printed(arguments: &[&str]) -> String {
    let output = corewire(arguments).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    // 2 says that the target was missed, which is an answer and no failure.
    assert!(matches!(output.status.code(), Some(0 | 2)), "corewire {arguments:?} failed: {err}");
    out
}

/// Runs it with `--json` and returns the objects it printed, one a line.
pub fn objects(arguments: &[&str]) -> Vec<Value> {
    let out = printed(&[arguments, &["--json"]].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// The one object that it printed.
pub fn object(arguments: &[&str]) -> Value {
    let mut all = objects(arguments);
    assert_eq!(all.len(), 1, "one object");
    all.swap_remove(0)
}

/// Runs it, asks for a failure that prints nothing to standard output, and returns the complaint.
pub fn complaint(arguments: &[&str]) -> String {
    let output = corewire(arguments).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(!output.status.success(), "corewire {arguments:?} should fail; it printed {out}");
    assert_eq!(out, "", "corewire {arguments:?}");
    assert!(!err.contains("panicked"), "corewire {arguments:?}: {err}");
    err
}

/// `--set` for each of these.
pub fn settings<'a>(assignments: &[&'a str]) -> Vec<&'a str> {
    assignments.iter().flat_map(|assignment| ["--set", assignment]).collect()
}

/// Starts it with both outputs piped.
pub fn start(arguments: &[&str]) -> Child {
    std::process::Command::new(BINARY)
        .args(arguments)
        .env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub fn has_fields(object: &Value, fields: &[&str]) {
    for field in fields {
        assert!(object.get(field).is_some(), "`{field}` is missing in {object}");
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Whether the long versions are wanted.
pub fn soak() -> bool {
    std::env::var_os("COREWIRE_SOAK").is_some_and(|value| value == "1")
}

/// A job of which every round matters: target 0, a few machines, shifts and integers.
pub fn long_job(rounds: &str) -> Vec<String> {
    let stop = format!("stop.rounds={rounds}");
    let keys = ["method.name=core-agd", "method.wire=q", "machines.count=4", "stop.target=0", "method.seed=3", &stop];
    keys.iter().flat_map(|key| ["--set".to_owned(), (*key).to_owned()]).collect()
}
