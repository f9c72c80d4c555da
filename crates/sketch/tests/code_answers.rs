//! `code-answers.txt` holds: a change of any integer, of its scalar or of any byte of the code is seen here first.
//!
//! The Python package is held to the same file. `COREWIRE_REGENERATE=1 cargo test -p corewire-sketch --test code_answers` writes it anew;
//! do so only where the change of values is meant and announced.

use std::fmt::{Display, Write};

use corewire_sketch::code::{Dither, IntegerCoder, decode_many, dequantise, encode_many, quantise};
use corewire_sketch::{CommonRandomness, Purpose, Seed};

const FILE: &str = include_str!("../code-answers.txt");

const HEADER: &str = "\
# Known answers of the code of scalars. Any program in any language that claims to be compatible must reproduce every line.
#
# A line is a kind, then key=value pairs, then a colon and the answer. The seed is Seed::reproducible(2026), and dithers are those of purpose 2 (Dither) at
# the round and the row rank. Word j of the key stream gives dithers 2 j, from its lower 32 bits, and 2 j + 1, from its upper ones: u = (k + 1/2) / 2^32, k being the
# bits as a signed number. The scalars are p_j = ((37 j) mod 19 - 9) / 8, j = 0, 1, ..., times 1000 where j mod 50 = 49, so that some
# integers are large.
# integers  round(p_j / step + u_j), in decimal.
# scalars   (z_j - u_j) step, as the bits of an f64 in hexadecimal, most significant digit first.
# message   the bytes of the integers by the adaptive code (IntegerCoder::encode), two hexadecimal digits a byte.
# bulk      the bytes of the same integers by the code in four streams (encode_many).
";

const SEED: u64 = 2026;
/// Round, rank, count and step.
const CASES: [(u64, u32, usize, f64); 7] = [
    (0, 0, 0, 1.0),
    (0, 0, 1, 1.0),
    (1, 0, 9, 0.25),
    (3, 2, 60, 1.5),
    (7, 5, 200, 4.0),
    (u64::MAX, u32::MAX, 60, 0.01),
    (12, 0, 500, 20.0),
];

fn scalars(count: usize) -> Vec<f64> {
    let scalar = |j: usize| ((37 * j % 19) as f64 - 9.0) / 8.0 * if j % 50 == 49 { 1000.0 } else { 1.0 };
    (0..count).map(scalar).collect()
}

fn line<T: Display>(text: &mut String, kind: &str, keys: &str, answer: impl IntoIterator<Item = T>) {
    write!(text, "{kind} {keys} :").unwrap();
    answer.into_iter().for_each(|word| write!(text, " {word}").unwrap());
    text.push('\n');
}

#[test]
fn integers_and_bytes_are_the_known_answers() {
    let mut text = HEADER.to_owned();
    let randomness = CommonRandomness::new(&Seed::reproducible(SEED));
    for (round, rank, count, step) in CASES {
        let mut dithers = vec![Dither::NONE; count];
        Dither::fill(&mut randomness.words(Purpose::Dither, round, rank), &mut dithers);
        let integers: Vec<i32> =
            scalars(count).into_iter().zip(&dithers).map(|(scalar, &dither)| quantise(scalar, step, dither)).collect();
        let means = integers.iter().zip(&dithers).map(|(&integer, &dither)| dequantise(integer, step, dither));
        let (mut message, mut bulk, mut again) = (Vec::new(), Vec::new(), vec![0; count]);
        IntegerCoder::new().encode(&integers, &dithers, &mut message);
        encode_many(&integers, &dithers, &mut bulk);
        IntegerCoder::new().decode(&message, &dithers, &mut again).unwrap();
        assert_eq!(again, integers);
        decode_many(&bulk, &dithers, &mut again).unwrap();
        assert_eq!(again, integers);
        let keys = format!("round={round} rank={rank} count={count} step={step}");
        line(&mut text, "integers", &keys, &integers);
        line(&mut text, "scalars", &keys, means.map(|mean| format!("{:016x}", mean.to_bits())));
        line(&mut text, "message", &keys, message.iter().map(|byte| format!("{byte:02x}")));
        line(&mut text, "bulk", &keys, bulk.iter().map(|byte| format!("{byte:02x}")));
    }
    if std::env::var_os("COREWIRE_REGENERATE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/code-answers.txt"), text).unwrap();
        return;
    }
    assert_eq!(text.lines().count(), FILE.lines().count());
    for (number, (found, known)) in text.lines().zip(FILE.lines()).enumerate() {
        assert_eq!(found, known, "line {}", number + 1);
    }
}
