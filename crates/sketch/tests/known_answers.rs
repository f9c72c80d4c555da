//! `known-answers.txt` holds: a change of any bit of the randomness, of a projection or of a reconstruction is seen here first.
//!
//! `check_known_answers.py` checks a part of it without this code. `COREWIRE_REGENERATE=1 cargo test -p corewire-sketch --test
//! known_answers` writes the file anew; do so only where the change of values is meant and announced.

use std::fmt::Write;
use std::num::NonZeroUsize;

use corewire_sketch::{AnySketch, CommonRandomness, Family, Kernel, Purpose, Real, Seed, Sketch};

const FILE: &str = include_str!("../known-answers.txt");

const HEADER: &str = "\
# Known answers of corewire-sketch. Any program in any language that claims to be compatible must reproduce every line.
#
# A line is a kind, then key=value pairs, then a colon and the answer: hexadecimal numbers, most significant digit first.
# seed      reproducible=N: the 32 bytes of Seed::reproducible(N).
# words     the first 64-bit words of the ChaCha12 key stream at (purpose, round, row). The key of purpose number P is the keyed BLAKE3 hash, under the
#           seed, of the 17 bytes \"corewire purpose \" and P as four bytes, lowest first. The nonce is the round (8 bytes) and the row (4 bytes), lowest first.
#           A word is eight bytes of the stream, lowest first.
# direction entries from, from + 1, ... of one direction, as the bits of an f32. How they follow from the words is in the documentation of the families.
# project   the scalars of the vector a_c = ((37 c) mod 19 - 9) / 8, c = 0, 1, ..., as the bits of the type. For `gaussian` and `gaussian-strict` the products
#           are summed with fused multiply-adds in sixteen lanes (coordinate c in lane c mod 16), for each chunk of 1024 coordinates apart; the lanes
#           are summed l with l + 8, then l + 4, l + 2, l + 1, and the chunks in order. For `rademacher`, of each 64 coordinates from c on, lane l is
#           increased by (x_l + x_{16+l}) + (x_{32+l} + x_{48+l}), x being the signed coordinates from c on and 0 after the last; the lanes are
#           summed as above for each block of 512 coordinates apart, and the blocks in order.
# rebuild   the reconstruction from the scalars p_j = ((5 j) mod 11 - 5) / 4, j = 0, 1, ..., as the bits of the type. The products are summed with fused
#           multiply-adds from direction 0 on, then divided by the budget. For `rademacher`, (y_j + y_{j+1}) + (y_{j+2} + y_{j+3}) is added for every fourth j, y being
#           the signed scalars and 0 after the last.
#           With the key thirds=1 all numbers of vector and scalars are divided by 3 and rounded to the type, so that the order of the sums shows.
#
# Gaussian entries, exactly. All arithmetic is in f32 with one rounding an operation. In a tile, generator l (xoshiro128++, seeded as the documentation of `Gaussian` says) makes
# entries l, 16 + l, 32 + l and 48 + l of every 64. With polynomials by Horner's rule, highest coefficient first, each step a fused multiply-add:
# `gaussian`, two words: each gives two numbers, from its upper 16 bits and from its lower 16. Of 16 bits, the highest is the sign and the others are k; v = 2 k + 1
#   = 4^s x/2 with 2 <= x < 8; the number is the cubic whose coefficient of x^i is at place (s + 7) mod 8 of quantile-i, negated where the sign is 1. Of the four
#   numbers a, b, c, d the entries are (a + b) + (c + d), (a - b) + (c - d), (a + b) - (c + d), (a - b) - (c - d).
# `gaussian-strict`, two words v, w, give x and y, and two more words two more:
#   radius           u = k / 2^31 with k = v >> 1 | 1, rounded to f32 before the division; e and z such that u = 2^e (1 + z) and the bits of 1 + z are at least
#                    3f3504f3 (sqrt 1/2) and below twice that number; r = sqrt(fma(e, ln2, z * ln(z))), negated where bit 31 of w is 1.
#   turn             t = w << 1 | 1, a signed 32-bit number, rounded to f32; h = t / 2^31; x = r * cos(h * h), y = r * (h * sin(h * h)).
# The coefficients, lowest first, as the bits of an f32; -2 is already in ln and ln2:
# polynomial name=quantile-0 : 40090f4f 3ffd32b1 3fe6f6d8 3fcef689 3fb47dd8 3f96930b 3f67e467 405b9db7
# polynomial name=quantile-1 : bdaaf28f bdb7e635 bdc8066d bdded402 be000ce6 be1a4289 be4b3f67 bf62747f
# polynomial name=quantile-2 : 3c10a068 3c1c05ea 3c283592 3c390f82 3c507e88 3c713494 3c8f6001 3e1955e5
# polynomial name=quantile-3 : b9d1b790 b9e32aaf b9f464f9 ba06108e ba168ce1 ba2df504 ba612b75 bbdee7da
# polynomial name=ln : bffffffd 3f80006a bf2aae50 3eff9870 becb83a1 3eb16446 bea809ae 3e4f3db2
# polynomial name=ln2 : bfb17218
# polynomial name=sin : 3fc90fdb bf255ddb 3da333bc bb9919e6 391e2b10
# polynomial name=cos : 3f7fffff bf9de9d3 3e81de83 bcaa7b0d 3a60f832
#
# Hadamard: the documentation of `Hadamard` says how the rows, the signs and the matrix follow from the address. The transform does
# Paley's factor first, where there is one, then the strides from the largest to 1. Large sketches are here with entries and scalars
# only; these scalars are exact sums, whatever the order.
#
# Keys: block and budgets are there for sketches by blocks. All addresses are of purpose 0 and the seed of the first line.
";

const SEED: u64 = 2026;
const SHAPES: [(usize, usize); 3] = [(1, 1), (20, 3), (70, 5)];

fn hex<T: Real>(values: &[T]) -> String {
    let digits = 2 * size_of::<T>();
    values.iter().fold(String::new(), |text, value| format!("{text} {:0digits$x}", value.bits()))
}

/// Numbers divided by three and rounded: sums of them are not exact.
fn thirds<T: Real>(mut values: Vec<T>) -> Vec<T> {
    values.iter_mut().for_each(|x| *x = T::from_f64(x.to_f64() / 3.0));
    values
}

fn vector<T: Real>(dim: usize) -> Vec<T> {
    (0..dim).map(|c| T::from_f64(((37 * c % 19) as f64 - 9.0) / 8.0)).collect()
}

fn scalars<T: Real>(len: usize) -> Vec<T> {
    (0..len).map(|j| T::from_f64(((5 * j % 11) as f64 - 5.0) / 4.0)).collect()
}

fn both<T: Real>(text: &mut String, kind: &str, keys: &str, round: u64, sketch: &AnySketch) {
    let (vector, scalars) = (vector(sketch.dim()), scalars(sketch.len()));
    outcomes::<T>(text, &format!("type={kind} {keys}"), round, sketch, &vector, &scalars);
}

fn outcomes<T: Real>(text: &mut String, keys: &str, round: u64, sketch: &AnySketch, vector: &[T], scalars: &[T]) {
    let mut projected = vec![T::ZERO; sketch.len()];
    sketch.project(round, vector, &mut projected);
    writeln!(text, "project {keys} :{}", hex(&projected)).unwrap();
    let mut rebuilt = vec![T::ZERO; sketch.dim()];
    sketch.reconstruct(round, scalars, &mut rebuilt);
    writeln!(text, "rebuild {keys} :{}", hex(&rebuilt)).unwrap();
}

fn answers(kernel: Kernel) -> String {
    let mut text = HEADER.to_owned();
    let seed = Seed::reproducible(SEED);
    let randomness = CommonRandomness::new(&seed);
    writeln!(text, "seed reproducible={SEED} : {}", seed.reveal()).unwrap();
    for (purpose, round, row) in
        [(Purpose::Directions, 0, 0), (Purpose::Rows, 1, 2), (Purpose::Dither, u64::MAX, u32::MAX)]
    {
        let mut words = randomness.words(purpose, round, row);
        write!(text, "words purpose={} round={round} row={row} :", purpose as u32).unwrap();
        for _ in 0..10 {
            write!(text, " {:016x}", words.next_u64()).unwrap();
        }
        text.push('\n');
    }
    for family in Family::ALL {
        for (dim, budget, round, row, from, count) in
            [(20, 3, 0, 0, 0, 20), (70, 3, 7, 2, 60, 10), (4110, 6, 1, 5, 4090, 20)]
        {
            let mut entries = vec![0.0; dim];
            match AnySketch::new(family, &randomness, dim, budget).unwrap().with_kernel(kernel) {
                AnySketch::Gaussian(sketch) => sketch.direction(round, row, &mut entries),
                AnySketch::Rademacher(sketch) => sketch.direction(round, row, &mut entries),
                AnySketch::Hadamard(sketch) => sketch.direction(round, row, &mut entries),
                AnySketch::Blocks(_) => unreachable!("a sketch of the whole vector"),
            }
            let entries = hex(&entries[from..from + count]);
            let keys = format!("family={family} dim={dim} budget={budget} round={round}");
            writeln!(text, "direction {keys} row={row} from={from} :{entries}").unwrap();
        }
        for (dim, budget) in SHAPES {
            let sketch = AnySketch::new(family, &randomness, dim, budget).unwrap().with_kernel(kernel);
            let keys = format!("family={family} dim={dim} budget={budget} round=3");
            both::<f32>(&mut text, "f32", &keys, 3, &sketch);
            both::<f64>(&mut text, "f64", &keys, 3, &sketch);
        }
        if family == Family::Rademacher {
            let sketch = AnySketch::new(family, &randomness, 600, 6).unwrap().with_kernel(kernel);
            let keys = "type=f32 family=rademacher dim=600 budget=6 round=5 thirds=1";
            outcomes::<f32>(&mut text, keys, 5, &sketch, &thirds(vector(600)), &thirds(scalars(6)));
        }
        if family == Family::Hadamard {
            large(&mut text, &randomness, kernel);
        }
        let block = NonZeroUsize::new(16).unwrap();
        let sketch = AnySketch::blocks(family, &randomness, 40, block, &[2, 5, 1]).unwrap().with_kernel(kernel);
        let keys = format!("family={family} dim=40 block=16 budgets=2,5,1 round=4");
        both::<f32>(&mut text, "f32", &keys, 4, &sketch);
        both::<f64>(&mut text, "f64", &keys, 4, &sketch);
    }
    text
}

/// Beyond 65536 coordinates: Paley's factors of order 20 and 12, and a power of two.
fn large(text: &mut String, randomness: &CommonRandomness, kernel: Kernel) {
    for (dim, from) in [(70_000, 69_990), (90_000, 8_190), (131_072, 65_530)] {
        let AnySketch::Hadamard(sketch) = AnySketch::new(Family::Hadamard, randomness, dim, 4).unwrap() else {
            unreachable!("a sketch of the whole vector")
        };
        let sketch = sketch.with_kernel(kernel);
        let keys = format!("family=hadamard dim={dim} budget=4 round=9");
        let mut entries = vec![0.0; dim];
        sketch.direction(9, 2, &mut entries);
        writeln!(text, "direction {keys} row=2 from={from} :{}", hex(&entries[from..from + 10])).unwrap();
        let mut scalars = vec![0f32; 4];
        sketch.project(9, &vector(dim), &mut scalars);
        writeln!(text, "project type=f32 {keys} :{}", hex(&scalars)).unwrap();
    }
}

#[test]
fn every_kernel_gives_the_known_answers() {
    if std::env::var_os("COREWIRE_REGENERATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/known-answers.txt");
        std::fs::write(path, answers(Kernel::REFERENCE)).unwrap();
        return;
    }
    for kernel in Kernel::available() {
        let found = answers(kernel);
        assert_eq!(found.lines().count(), FILE.lines().count());
        for (number, (found, known)) in found.lines().zip(FILE.lines()).enumerate() {
            assert_eq!(found, known, "line {} with the kernel `{kernel}`", number + 1);
        }
    }
}
