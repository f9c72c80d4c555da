//! The data set that travels with the program.

use std::path::Path;

use crate::{DataSet, ReadOptions, csv, read};

/// UCI optical recognition of handwritten digits: 1797 rows of 64 pixels from 0 to 16, labels 0 to 9.
pub fn digits() -> DataSet {
    let path = Path::new("digits");
    let bytes = &include_bytes!("../assets/digits.csv.gz")[..];
    let options = ReadOptions::default();
    let text = read::decompress(path, bytes, bytes.len() as u64, &options).expect("the bundled file is intact");
    csv::parse_csv(path, &text, &options).expect("the bundled file is valid")
}
