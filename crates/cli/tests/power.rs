//! A power cut after every call to the system: what a disk may then hold is resumed to the same bits.
#![cfg(target_os = "linux")]

mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use tool::*;

/// A file: what was written to it, and what of that was synced.
#[derive(Clone, Default)]
struct Inode {
    written: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Clone)]
enum Open {
    File { inode: usize, offset: usize, appends: bool },
    Folder,
}

/// A folder on a disk that keeps for certain only what was synced.
#[derive(Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    /// What a process has open, by its number.
    open: BTreeMap<i64, Open>,
}

/// What a folder holds.
type Files = BTreeMap<String, Vec<u8>>;

impl Disk {
    /// Does what a call did. Calls that do not concern the folder are let through.
    fn replay(&mut self, folder: &str, call: &Call) {
        let own = |path: &str| path.strip_prefix(folder).map(|name| name.trim_start_matches('/').to_owned());
        match call.name.as_str() {
            "openat" => {
                let Some(name) = call.texts.first().and_then(|path| own(path)) else { return };
                if name.is_empty() || name == "." || name == ".." {
                    self.open.insert(call.result, Open::Folder);
                    return;
                }
                let has = |flag: &str| call.line.contains(flag);
                let inode = match self.names.get(&name) {
                    Some(inode) => *inode,
                    None => {
                        assert!(has("O_CREAT"), "{} is opened before it is there", call.line);
                        self.inodes.push(Inode::default());
                        self.names.insert(name, self.inodes.len() - 1);
                        self.inodes.len() - 1
                    }
                };
                if has("O_TRUNC") {
                    self.inodes[inode].written.clear();
                }
                self.open.insert(call.result, Open::File { inode, offset: 0, appends: has("O_APPEND") });
            }
            "close" => drop(self.open.remove(&call.number)),
            "write" => {
                let Some(Open::File { inode, offset, appends }) = self.open.get_mut(&call.number) else { return };
                let (file, bytes) = (&mut self.inodes[*inode].written, &call.bytes[..call.result as usize]);
                let at = if *appends { file.len() } else { *offset };
                file.resize(file.len().max(at + bytes.len()), 0);
                file[at..at + bytes.len()].copy_from_slice(bytes);
                *offset = at + bytes.len();
            }
            "lseek" => {
                if let Some(Open::File { offset, .. }) = self.open.get_mut(&call.number) {
                    *offset = call.result as usize;
                }
            }
            "ftruncate" => {
                if let Some(Open::File { inode, .. }) = self.open.get(&call.number) {
                    let length = call.line.split(", ").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
                    self.inodes[*inode].written.resize(length.trim().parse().unwrap(), 0);
                }
            }
            "fsync" | "fdatasync" => match self.open.get(&call.number) {
                Some(Open::File { inode, .. }) => {
                    let inode = &mut self.inodes[*inode];
                    inode.synced = inode.written.clone();
                }
                Some(Open::Folder) => self.synced_names = self.names.clone(),
                None => {}
            },
            "rename" => {
                let (Some(from), Some(to)) = (own(&call.texts[0]), own(&call.texts[1])) else { return };
                let inode = self.names.remove(&from).unwrap();
                self.names.insert(to, inode);
            }
            "unlink" => {
                if let Some(name) = own(&call.texts[0]) {
                    self.names.remove(&name);
                }
            }
            _ => {}
        }
    }

    /// What may be on the disk after a power cut: everything, only what was synced, all names with what was synced of their files, and
    /// with half of what was not.
    fn survivors(&self) -> [Files; 4] {
        let files = |names: &BTreeMap<String, usize>, contents: fn(&Inode) -> Vec<u8>| {
            names.iter().map(|(name, &inode)| (name.clone(), contents(&self.inodes[inode]))).collect()
        };
        let half = |inode: &Inode| {
            let kept = inode.synced.len().min(inode.written.len());
            inode.written[..kept + (inode.written.len() - kept) / 2].to_vec()
        };
        [
            files(&self.names, |inode| inode.written.clone()),
            files(&self.synced_names, |inode| inode.synced.clone()),
            files(&self.names, |inode| inode.synced.clone()),
            files(&self.names, half),
        ]
    }
}

/// A call that succeeded.
struct Call {
    name: String,
    line: String,
    /// Its first argument, where that is a number.
    number: i64,
    /// Its quoted arguments, as paths and as bytes.
    texts: Vec<String>,
    bytes: Vec<u8>,
    result: i64,
}

/// The calls that strace wrote down, those that others interrupted put together again.
fn calls(log: &str) -> Vec<Call> {
    let mut unfinished: BTreeMap<String, String> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let (process, rest) = line.trim_start().split_once(' ').unwrap();
        let rest = rest.trim_start();
        if let Some(head) = rest.strip_suffix(" <unfinished ...>") {
            unfinished.insert(process.to_owned(), head.to_owned());
            continue;
        }
        let line = match rest.strip_prefix("<... ") {
            Some(tail) => unfinished.remove(process).unwrap() + tail.split_once("resumed>").unwrap().1,
            None => rest.to_owned(),
        };
        let Some((call, result)) = line.rsplit_once(" = ") else { continue };
        let Ok(result) = result.split_whitespace().next().unwrap().parse::<i64>() else { continue };
        let Some((name, arguments)) = call.split_once('(') else { continue };
        if result < 0 {
            continue;
        }
        let quoted: Vec<Vec<u8>> = arguments.split('"').skip(1).step_by(2).map(unescaped).collect();
        calls.push(Call {
            name: name.to_owned(),
            number: arguments.split([',', ')']).next().unwrap().trim().parse().unwrap_or(-1),
            texts: quoted.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect(),
            bytes: quoted.first().cloned().unwrap_or_default(),
            line: line.clone(),
            result,
        });
    }
    calls
}

/// Bytes that are written as `\x2f\x74`.
fn unescaped(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).map(|digits| u8::from_str_radix(&digits[..2], 16).unwrap()).collect()
}

const KEYS: [&str; 6] = [
    "method.name=core-agd",
    "machines.count=2",
    "problem.rows=50",
    "stop.target=0",
    "method.wire=q",
    "problem.alpha=0.1",
];

/// Runs it under strace, and returns its calls.
fn traced(folder: &Path, arguments: &[&str]) -> Option<Vec<Call>> {
    let log = folder.join("log");
    let watched = "trace=openat,write,lseek,ftruncate,rename,unlink,fsync,fdatasync,close";
    let output = Command::new("strace")
        .args(["-f", "-qq", "-xx", "-s", "10000000", "-e", watched, "-e", "signal=none", "-o", text(&log), BINARY])
        .args(arguments)
        .env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"))
        .output()
        .ok()?;
    output.status.success().then(|| calls(&std::fs::read_to_string(&log).unwrap()))
}

#[test]
fn after_a_power_cut_at_any_call_a_run_goes_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let keys = |rounds| settings(&[&KEYS[..], &[rounds]].concat());
    let whole = object(&[&["run"], &keys("stop.rounds=6")[..]].concat());
    // It begins, comes to its end, and goes on.
    let first = [&["run", "--quiet", "--out", text(&run)], &keys("stop.rounds=3")[..]].concat();
    let Some(mut calls) = traced(folder.path(), &first) else {
        println!("skipped: there is no strace, or it may not watch");
        return;
    };
    let second = ["run", "--quiet", "--resume", text(&run), "--set", "stop.rounds=6"];
    calls.extend(traced(folder.path(), &second).expect("it ran a moment ago"));

    let mut disk = Disk::default();
    let mut seen = BTreeSet::new();
    let (mut states, mut resumed) = (0, 0);
    for (number, call) in calls.iter().enumerate() {
        disk.replay(text(&run), call);
        for (kind, files) in disk.survivors().into_iter().enumerate() {
            if !seen.insert(files.clone()) {
                continue;
            }
            states += 1;
            let place = folder.path().join("after");
            std::fs::create_dir(&place).unwrap();
            files.iter().for_each(|(name, bytes)| std::fs::write(place.join(name), bytes).unwrap());
            let again = match files.contains_key("journal.bin") {
                true => vec!["run", "--json", "--resume", text(&place), "--set", "stop.rounds=6"],
                false => [&["run", "--json", "--out", text(&place)], &keys("stop.rounds=6")[..]].concat(),
            };
            resumed += usize::from(files.contains_key("journal.bin"));
            let output = corewire(&again).output().unwrap();
            let words = String::from_utf8_lossy(&output.stderr);
            let names: Vec<_> = files.iter().map(|(name, bytes)| (name, bytes.len())).collect();
            assert!(
                output.status.success(),
                "call {number}, kind {kind}: {}\n{words}\n{names:?}",
                &call.line[..call.line.len().min(120)]
            );
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["digest"], whole["digest"], "call {number}, kind {kind}");
            assert_eq!(
                object(&["journal", "verify", text(&place)])["digest"],
                whole["digest"],
                "call {number}, kind {kind}"
            );
            std::fs::remove_dir_all(place).unwrap();
        }
    }
    println!("{} calls, {states} states of the disk, {resumed} of them resumed", calls.len());
    assert!(resumed > 30, "{resumed}");
    // What the calls add up to is what is there.
    for (name, bytes) in &disk.survivors()[0] {
        assert_eq!(&std::fs::read(run.join(name)).unwrap(), bytes, "{name}");
    }
}
