//! Valid files, damaged in many small ways: a reader refuses or accepts them, but never panics, and what it accepts is a
//! valid data set. The same cases on every run; `COREWIRE_SOAK=1` makes millions.

use std::io::Write;
use std::path::Path;

use corewire_data::{
    DataError, DataSet, ReadOptions, load, parse_csv, parse_idx, parse_libsvm, write_csv, write_libsvm,
};

const LIBSVM: &[u8] =
    b"+1 1:0.5 3:-2e-3 7:1 # a comment\r\n-1 2:1 \n\n2 1:3 2:4.25 3:5 4:6 5:7 6:8 7:9\n0\n1e1 12:123456789012345678\n";
const CSV: &[u8] = b"a,\"b,c\",d,label\r\n1,2.5,-3e2,0\n0,0,0,1\n\n\"4\",5 ,6.00000000000000001,1\n# note\n.5,+7,8,2\n";
const SAMPLES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 0, 0, 0, 9, 255, 0, 128, 7];
const LABELS: &[u8] = &[0, 0, 8, 1, 0, 0, 0, 3, 4, 0, 9];

/// What the formats are made of, so that mutations stay close to the grammar.
const DICTIONARY: &[&[u8]] = &[
    b"nan",
    b"inf",
    b"-",
    b"+",
    b".",
    b"e",
    b"1e999",
    b"1e-999",
    b":",
    b",",
    b";",
    b"\t",
    b"\"",
    b"#",
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"0:",
    b"4294967296:",
    b"18446744073709551616",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xef\xbb\xbf",
    b"\x80",
    b"99999999999999999999999999",
    b"1:1 1:1",
];

/// splitmix64.
struct Words(u64);

impl Words {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

fn mutated(valid: &[u8], words: &mut Words) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..=words.below(4) {
        let at = words.below(bytes.len() + 1);
        let end = (at + words.below(9)).min(bytes.len());
        match words.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(at..at, bytes[at..end].to_vec()).collect::<Vec<_>>()),
            3 | 4 => {
                let word = DICTIONARY[words.below(DICTIONARY.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            5 => {
                let word = DICTIONARY[words.below(DICTIONARY.len())];
                bytes.splice(at..end, word.iter().copied());
            }
            6 if at < bytes.len() => bytes[at] ^= 1 << words.below(8),
            _ if at < bytes.len() => bytes[at] = words.below(256) as u8,
            _ => {}
        }
    }
    bytes
}

fn repeats(usual: usize, soak: usize) -> usize {
    if std::env::var_os("COREWIRE_SOAK").is_some_and(|value| value == "1") { soak } else { usual }
}

/// Counts what was accepted and checks that it is whole: it survives being written and read again.
fn check(result: Result<DataSet, DataError>, accepted: &mut usize) {
    let Ok(set) = result else { return };
    *accepted += 1;
    let options = ReadOptions { dim: Some(set.dim()), ..Default::default() };
    let mut text = Vec::new();
    write_libsvm(&set, &mut text).unwrap();
    let again = parse_libsvm(Path::new(&set.name), &text, &options).unwrap();
    assert_eq!(again, set);
    // A few bytes of LIBSVM can name a column in the millions; as CSV that is a large file.
    if set.dim() < 1000 {
        text.clear();
        write_csv(&set, &mut text).unwrap();
        assert_eq!(parse_csv(Path::new(&set.name), &text, &options).unwrap(), set);
    }
}

#[test]
fn no_mutation_of_libsvm_text_is_more_than_refused() {
    let (mut words, mut accepted, count) = (Words(1), 0, repeats(20_000, 2_000_000));
    for _ in 0..count {
        let text = mutated(LIBSVM, &mut words);
        check(parse_libsvm(Path::new("mutated"), &text, &ReadOptions::default()), &mut accepted);
    }
    // Otherwise the mutations only ever test the first line.
    assert!(accepted > count / 20 && accepted < count, "{accepted}");
}

#[test]
fn no_mutation_of_csv_text_is_more_than_refused() {
    let (mut words, mut accepted, count) = (Words(2), 0, repeats(20_000, 2_000_000));
    for _ in 0..count {
        let text = mutated(CSV, &mut words);
        check(parse_csv(Path::new("mutated"), &text, &ReadOptions::default()), &mut accepted);
    }
    assert!(accepted > count / 20 && accepted < count, "{accepted}");
}

#[test]
fn no_mutation_of_idx_is_more_than_refused() {
    let (mut words, mut accepted, count) = (Words(3), 0, repeats(20_000, 2_000_000));
    let (path, labels_path) = (Path::new("mutated"), Path::new("labels"));
    for turn in 0..count {
        let mut samples = SAMPLES.to_vec();
        let mut labels = LABELS.to_vec();
        match turn % 3 {
            0 => samples = mutated(SAMPLES, &mut words),
            1 => labels = mutated(LABELS, &mut words),
            _ => {
                // Values only: a file with a true header.
                let at = 16 + words.below(SAMPLES.len() - 16);
                samples[at] = words.below(256) as u8;
            }
        }
        check(parse_idx(path, &samples, labels_path, &labels, &ReadOptions::default()), &mut accepted);
    }
    assert!(accepted > count / 20 && accepted < count, "{accepted}");
}

#[test]
fn no_mutation_of_a_compressed_file_is_more_than_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = ReadOptions { max_bytes: 1 << 20, ..Default::default() };
    let text = LIBSVM.repeat(20);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&text).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
    bzip2.write_all(&text).unwrap();
    let xz_options = lzma_rust2::XzOptions::with_preset(1);
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), xz_options).unwrap();
    xz.write_all(&text).unwrap();
    let files = [gzip.finish().unwrap(), bzip2.finish().unwrap(), xz.finish().unwrap()];
    let path = folder.path().join("file.libsvm");
    let expected = parse_libsvm(&path, &text, &options).unwrap();
    let mut words = Words(4);
    for valid in &files {
        std::fs::write(&path, valid).unwrap();
        assert_eq!(load(&path, &options).unwrap(), expected);
        for _ in 0..repeats(1_000, 20_000) {
            std::fs::write(&path, mutated(valid, &mut words)).unwrap();
            check(load(&path, &options), &mut 0);
        }
    }
}
