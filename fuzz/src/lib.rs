//! A small fuzzer for a stable compiler: it mutates the inputs of a corpus, keeps in mind what was accepted, and goes on from there. The
//! targets are in `tests/targets.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

#[allow(dead_code)]
#[path = "../../crates/cli/src/job.rs"]
pub mod job;

/// splitmix64: the same inputs on every run.
pub struct Words(pub u64);

impl Words {
    /// A number below this one.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// What formats are made of, so that mutations stay close to their grammars.
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
    b"[method]\n",
    b"name",
    b"= ",
    b"\"auto\"",
    b"[",
    b"]",
    b"{",
    b"}",
    b"true",
    b"\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x01",
    b"F64",
    b"0/0/x",
    b"0/traffic",
];

/// An input with a few small changes, now and then with a piece of another.
pub fn mutated(valid: &[u8], other: &[u8], words: &mut Words) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..=words.below(4) {
        let at = words.below(bytes.len() + 1);
        let end = (at + words.below(9)).min(bytes.len());
        let word = DICTIONARY[words.below(DICTIONARY.len())];
        match words.below(9) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(at..at, bytes[at..end].to_vec()).collect::<Vec<_>>()),
            3 | 4 => drop(bytes.splice(at..at, word.iter().copied()).collect::<Vec<_>>()),
            5 => drop(bytes.splice(at..end, word.iter().copied()).collect::<Vec<_>>()),
            6 => {
                let from = words.below(other.len() + 1);
                let to = (from + words.below(40)).min(other.len());
                drop(bytes.splice(at..end, other[from..to].iter().copied()).collect::<Vec<_>>());
            }
            7 if at < bytes.len() => bytes[at] ^= 1 << words.below(8),
            _ if at < bytes.len() => bytes[at] = words.below(256) as u8,
            _ => {}
        }
    }
    bytes
}

/// Accepted inputs that are kept in mind, and the longest of them.
const KEPT: usize = 2000;
const LONGEST: usize = 512;

/// Runs a target on mutations of its corpus: for five seconds, for sixty with `COREWIRE_SOAK=1`, or as many as `COREWIRE_FUZZ_EXECUTIONS`
/// says. The target panics where a law is broken, and says whether it accepted the input.
pub fn fuzz(name: &str, target: impl Fn(&[u8]) -> bool) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<_> =
        std::fs::read_dir(&corpus).expect("a corpus").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let mut inputs: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).expect("a readable file")).collect();
    let variable = |name: &str| std::env::var(name).ok();
    let executions = variable("COREWIRE_FUZZ_EXECUTIONS").and_then(|count| count.parse::<u64>().ok());
    let soak = variable("COREWIRE_SOAK").is_some_and(|value| value == "1");
    let deadline = Instant::now() + Duration::from_secs(if soak { 60 } else { 5 });
    let (begun, seeds) = (Instant::now(), inputs.len());
    let (mut words, mut count, mut accepted) = (Words(1), 0u64, 0u64);
    let check = |input: &[u8]| {
        catch_unwind(AssertUnwindSafe(|| target(input))).unwrap_or_else(|panic| {
            eprintln!("{name}: \"{}\"", input.escape_ascii());
            resume_unwind(panic)
        })
    };
    let taken = inputs.iter().filter(|input| check(input)).count();
    assert!(taken > 0, "{name}: nothing of the corpus is accepted");
    while executions.map_or_else(|| count % 64 != 0 || Instant::now() < deadline, |executions| count < executions) {
        let (one, other) = (words.below(inputs.len()), words.below(inputs.len()));
        let input = mutated(&inputs[one], &inputs[other], &mut words);
        count += 1;
        if check(&input) {
            accepted += 1;
            if input.len() <= LONGEST && inputs.len() < seeds + KEPT {
                inputs.push(input);
            } else if input.len() <= LONGEST {
                let place = seeds + words.below(KEPT);
                inputs[place] = input;
            }
        }
    }
    println!("{name}: {count} executions, {accepted} accepted, {:.0} s", begun.elapsed().as_secs_f64());
}
