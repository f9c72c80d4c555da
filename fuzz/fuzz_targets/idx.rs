//! A pair of IDX files is refused or read; the first byte says where one ends and the other begins.
#![no_main]

use std::path::Path;

use corewire_data::{ReadOptions, parse_idx};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&length, files)) = input.split_first() else { return };
    let (labels, samples) = files.split_at(usize::from(length).min(files.len()));
    let path = Path::new("fuzz");
    let Ok(set) = parse_idx(path, samples, path, labels, &ReadOptions::default()) else { return };
    assert_eq!(set.rows(), set.labels.len());
    assert!(set.matrix.nonzeros() <= samples.len());
});
