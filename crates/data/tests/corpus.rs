//! Malformed files: each is refused with the message that `corpus/expected.txt` expects.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use corewire_data::{ReadOptions, load};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn expected() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(corpus().join("expected.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once('\t').map(|(file, part)| (file.into(), part.into())).unwrap()).collect()
}

#[test]
fn every_malformed_file_is_refused_by_name_place_and_reason() {
    // A small limit, so that a small bomb will do.
    let options = ReadOptions { max_bytes: 1 << 20, ..Default::default() };
    let mut wrong = Vec::new();
    for (file, part) in expected() {
        let message = match load(&corpus().join(&file), &options) {
            Ok(set) => format!("accepted with {} rows of {}", set.rows(), set.dim()),
            Err(e) => e.to_string(),
        };
        // The file at fault may be the one with the labels beside it, whose name has the same stem.
        let stem = file.split('-').next().unwrap();
        if !message.contains(&part) || !message.contains(stem) {
            wrong.push(format!("{file}\n   expected: {part}\n   found:    {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_list_of_expectations_is_complete() {
    let listed: BTreeSet<String> = expected().into_iter().map(|(file, _)| file).collect();
    let names = std::fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let present: BTreeSet<String> = names.filter(|name| name != "expected.txt").collect();
    assert_eq!(listed, present);
}
