//! The ChaCha12 block function, four blocks at once: the same key stream that [`crate::Words`] reads, for kernels that need much of it.

use super::{Operation, Simd};

/// "expand 32-byte k", as every ChaCha begins.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The key and the round: what all addresses of one call share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) key: [u32; 8],
    pub(crate) round: u64,
}

/// One block for each of four (row, counter) addresses.
#[inline(always)]
pub(super) fn blocks<S: Simd>(simd: S, stream: &Stream, rows: [u32; 4], counters: [u32; 4]) -> [[u32; 16]; 4] {
    let mut out = [[0; 16]; 4];
    blocks_at::<S, 1>(simd, stream, &[rows], &[counters], &mut out);
    out
}

/// Block `counter` of sixteen rows from `first` on: word w of every row is in lane after lane of vector w.
#[inline(always)]
pub(super) fn blocks_of_rows<S: Simd>(simd: S, stream: &Stream, first: u32, counter: u32) -> [S::U; 16] {
    let rows = simd.u_load(&std::array::from_fn(|row| first.wrapping_add(row as u32)));
    let (low, high) = (simd.u_splat(stream.round as u32), simd.u_splat((stream.round >> 32) as u32));
    let mut start = [simd.u_splat(counter); 16];
    for (word, &constant) in start.iter_mut().zip(CONSTANTS.iter().chain(&stream.key)) {
        *word = simd.u_splat(constant);
    }
    [start[13], start[14], start[15]] = [low, high, rows];
    let mut words = start;
    for _ in 0..6 {
        quarter::<S, 0, 4, 8, 12>(simd, &mut words);
        quarter::<S, 1, 5, 9, 13>(simd, &mut words);
        quarter::<S, 2, 6, 10, 14>(simd, &mut words);
        quarter::<S, 3, 7, 11, 15>(simd, &mut words);
        quarter::<S, 0, 5, 10, 15>(simd, &mut words);
        quarter::<S, 1, 6, 11, 12>(simd, &mut words);
        quarter::<S, 2, 7, 8, 13>(simd, &mut words);
        quarter::<S, 3, 4, 9, 14>(simd, &mut words);
    }
    for (word, start) in words.iter_mut().zip(start) {
        *word = simd.u_add(*word, start);
    }
    words
}

#[inline(always)]
fn quarter<S: Simd, const A: usize, const B: usize, const C: usize, const D: usize>(simd: S, words: &mut [S::U; 16]) {
    (words[A], words[B], words[C], words[D]) = quarter_rounds(simd, words[A], words[B], words[C], words[D]);
}

/// One block for each of 4 `N` addresses: `N` chains of instructions that do not wait for each other.
#[inline(always)]
pub(super) fn blocks_at<S: Simd, const N: usize>(
    simd: S,
    stream: &Stream,
    rows: &[[u32; 4]; N],
    counters: &[[u32; 4]; N],
    out: &mut [[u32; 16]],
) {
    let mut constants = [0; 16];
    let mut low = [0; 16];
    let mut high = [0; 16];
    let mut addresses = [[0; 16]; N];
    for block in 0..4 {
        constants[4 * block..][..4].copy_from_slice(&CONSTANTS);
        low[4 * block..][..4].copy_from_slice(&stream.key[..4]);
        high[4 * block..][..4].copy_from_slice(&stream.key[4..]);
        for n in 0..N {
            let nonce = [counters[n][block], stream.round as u32, (stream.round >> 32) as u32, rows[n][block]];
            addresses[n][4 * block..][..4].copy_from_slice(&nonce);
        }
    }
    let (mut a, mut b) = ([simd.u_load(&constants); N], [simd.u_load(&low); N]);
    let (mut c, mut d) = ([simd.u_load(&high); N], [simd.u_splat(0); N]);
    for n in 0..N {
        d[n] = simd.u_load(&addresses[n]);
    }
    for _ in 0..6 {
        for n in 0..N {
            (a[n], b[n], c[n], d[n]) = quarter_rounds(simd, a[n], b[n], c[n], d[n]);
        }
        for n in 0..N {
            (b[n], c[n], d[n]) = (simd.u_turn1(b[n]), simd.u_turn2(c[n]), simd.u_turn3(d[n]));
        }
        for n in 0..N {
            (a[n], b[n], c[n], d[n]) = quarter_rounds(simd, a[n], b[n], c[n], d[n]);
        }
        for n in 0..N {
            (b[n], c[n], d[n]) = (simd.u_turn3(b[n]), simd.u_turn2(c[n]), simd.u_turn1(d[n]));
        }
    }
    let mut lanes = [0; 16];
    for n in 0..N {
        let starts = [&constants, &low, &high, &addresses[n]];
        for (quarter, (end, start)) in [a[n], b[n], c[n], d[n]].into_iter().zip(starts).enumerate() {
            simd.u_store(simd.u_add(end, simd.u_load(start)), &mut lanes);
            for block in 0..4 {
                out[4 * n + block][4 * quarter..][..4].copy_from_slice(&lanes[4 * block..][..4]);
            }
        }
    }
}

#[inline(always)]
fn quarter_rounds<S: Simd>(simd: S, a: S::U, b: S::U, c: S::U, d: S::U) -> (S::U, S::U, S::U, S::U) {
    let a = simd.u_add(a, b);
    let d = simd.u_rotl::<16, 16>(simd.u_xor(d, a));
    let c = simd.u_add(c, d);
    let b = simd.u_rotl::<12, 20>(simd.u_xor(b, c));
    let a = simd.u_add(a, b);
    let d = simd.u_rotl::<8, 24>(simd.u_xor(d, a));
    let c = simd.u_add(c, d);
    let b = simd.u_rotl::<7, 25>(simd.u_xor(b, c));
    (a, b, c, d)
}

/// Four consecutive blocks of one row's key stream, from block `counter` on.
pub(crate) struct Keystream {
    pub(crate) stream: Stream,
    pub(crate) row: u32,
    pub(crate) counter: u32,
}

impl Operation for Keystream {
    type Output = [[u32; 16]; 4];

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Output {
        let counters = std::array::from_fn(|k| self.counter.wrapping_add(k as u32));
        blocks(simd, &self.stream, [self.row; 4], counters)
    }
}
