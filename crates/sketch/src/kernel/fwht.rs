//! The Hadamard transform: butterflies (x + y, x - y) at strides n/2, n/4, ..., 1, in this order, which fixes the bits.
//!
//! A vector that a near cache holds is transformed in place. A larger one is read as a table of rows: [`Columns`] does the strides
//! between rows, in strips of 512 columns that lie one after another in a scratch of the vector's size, and [`finish_rows`] the strides
//! inside each row. So memory is read twice and written once more, and neither strips nor rows depend on each other. What goes in and
//! comes out is signed, scaled and sampled on the way.

use super::chacha::{Stream, blocks};
use super::dense::Finish;
use super::simd::Element;
use super::{Operation, Simd};
use crate::Real;
use crate::rows::Rows;

/// Numbers that stay in the first cache while all their strides are done.
const RESIDENT: usize = 4096;
/// Columns of a strip: those that one block of the key stream has signs for.
pub(crate) const STRIP: usize = 512;
/// Dimensions up to this one are padded to a power of two.
const PADDED: usize = 1 << 16;

/// The order of a Hadamard matrix: `base` << `log`, where `base` is 1, 12 or 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    base: usize,
    log: u32,
}

impl Order {
    /// The order for vectors of `dim` numbers: the power of two not below it and, above 65536, 5/8 or 6/8 of that where it suffices.
    pub(crate) fn covering(dim: usize) -> Self {
        let power = Self::power(dim.next_power_of_two());
        if dim <= PADDED {
            return power;
        }
        let [five_eighths, six_eighths] =
            [Self { base: 20, log: power.log - 5 }, Self { base: 12, log: power.log - 4 }];
        [five_eighths, six_eighths].into_iter().find(|order| order.len() >= dim).unwrap_or(power)
    }

    /// A power of two.
    pub(crate) fn power(len: usize) -> Self {
        debug_assert!(len.is_power_of_two());
        Self { base: 1, log: len.ilog2() }
    }

    pub(crate) fn len(self) -> usize {
        self.base << self.log
    }

    pub(crate) fn is_power(self) -> bool {
        self.base == 1
    }

    /// Whether the entry of the matrix is -1.
    pub(crate) fn is_negative(self, row: usize, column: usize) -> bool {
        let odd = (row & column & ((1 << self.log) - 1)).count_ones() % 2 == 1;
        odd != is_negative_in_paleys(self.base, row >> self.log, column >> self.log)
    }

    /// Numbers in a row of the table: few enough for the second cache, and few rows enough for a strip to be there too.
    pub(crate) fn columns(self) -> usize {
        let log = match (self.base, self.log) {
            (1, 0..=16) => self.log,
            (1, log) => (log - 9).max(15),
            (_, log) => log.saturating_sub(5).max(log.min(15)),
        };
        1 << log
    }

    /// Rows of the table.
    pub(crate) fn rows(self) -> usize {
        self.len() / self.columns()
    }
}

/// The matrix of Paley (*On orthogonal matrices*, 1933) of order q + 1 for the primes q = 11 and 19: 1 on the diagonal and in row 0, -1
/// in the rest of column 0, and for i, k > 0 it is 1 where i - k is a square modulo q. Of order 1, the number 1.
const fn is_negative_in_paleys(order: usize, i: usize, k: usize) -> bool {
    if i == k || i == 0 {
        return false;
    }
    if k == 0 {
        return true;
    }
    let (q, difference) = (order - 1, (i + order - 1 - k) % (order - 1));
    let mut root = 1;
    while root < q {
        if root * root % q == difference {
            return false;
        }
        root += 1;
    }
    true
}

/// What is done with each block of the transform as it is finished, while the first cache has it.
pub(crate) trait Outlet<T> {
    /// Whether any of the `len` numbers from `start` on is of use; both are multiples of 64. What is not need not be computed.
    #[inline(always)]
    fn wants(&self, _start: usize, _len: usize) -> bool {
        true
    }

    /// Takes the numbers from `start` on. Blocks come in order.
    fn take<S: Simd>(&mut self, simd: S, start: usize, block: &mut [T]);
}

/// Leaves them where they are.
pub(crate) struct Leave;

impl<T> Outlet<T> for Leave {
    #[inline(always)]
    fn take<S: Simd>(&mut self, _: S, _: usize, _: &mut [T]) {}
}

/// Copies the numbers of the chosen rows of the matrix to `out`, the next one first.
pub(crate) struct Sample<'a, T> {
    pub(crate) rows: &'a Rows,
    pub(crate) out: &'a mut [T],
    pub(crate) taken: usize,
}

impl<T: Real> Outlet<T> for Sample<'_, T> {
    #[inline(always)]
    fn wants(&self, start: usize, len: usize) -> bool {
        self.rows.any(start, len)
    }

    #[inline(always)]
    fn take<S: Simd>(&mut self, _: S, start: usize, block: &mut [T]) {
        for (index, block) in block.chunks(64).enumerate() {
            let mut word = self.rows.word(start / 64 + index);
            while word != 0 {
                self.out[self.taken] = block[word.trailing_zeros() as usize];
                self.taken += 1;
                word &= word - 1;
            }
        }
    }
}

/// SignsAt the numbers and puts them into their places of `out`, which begins at coordinate `first`.
pub(crate) struct Write<'a, T> {
    pub(crate) signs: Option<SignsAt>,
    pub(crate) first: usize,
    pub(crate) out: &'a mut [T],
    pub(crate) finish: Finish<T>,
}

/// The signs at one address.
#[derive(Clone, Copy)]
pub(crate) struct SignsAt {
    pub(crate) stream: Stream,
    pub(crate) row: u32,
}

impl SignsAt {
    /// The words of four blocks of 512 signs.
    #[inline(always)]
    fn words<S: Simd>(&self, simd: S, counters: [usize; 4]) -> [[u32; 16]; 4] {
        blocks(simd, &self.stream, [self.row; 4], counters.map(|counter| counter as u32))
    }
}

impl<T: Real> Outlet<T> for Write<'_, T> {
    #[inline(always)]
    fn take<S: Simd>(&mut self, simd: S, start: usize, block: &mut [T]) {
        let Some(out) = self.out.get_mut(start - self.first..) else { return };
        let len = out.len().min(block.len());
        let (out, later) = out.split_at_mut(len);
        let mut words = [[0; 16]; 4];
        for (call, (out, block)) in out.chunks_mut(4 * STRIP).zip(block[..len].chunks(4 * STRIP)).enumerate() {
            if let Some(signs) = self.signs {
                let counter = start / STRIP + 4 * call;
                words = signs.words(simd, std::array::from_fn(|k| counter + k));
            }
            for (part, ((out, block), words)) in out.chunks_mut(STRIP).zip(block.chunks(STRIP)).zip(&words).enumerate()
            {
                let mut bits = simd.u_load(words);
                let (whole, tail) = out.as_chunks_mut::<16>();
                let (lanes, rest) = block.as_chunks::<16>();
                for (k, (out, lanes)) in whole.iter_mut().zip(lanes).enumerate() {
                    // Where the next block will go.
                    if let Some(line) = later.get((4 * call + part) * STRIP + 16 * k) {
                        simd.prefetch(line);
                    }
                    self.finish.lanes(simd, T::flip(simd, T::load(simd, lanes), bits), out);
                    bits = simd.u_shl::<1>(bits);
                }
                if !tail.is_empty() {
                    let (mut lanes, mut padded) = ([T::default(); 16], [T::default(); 16]);
                    lanes[..rest.len()].copy_from_slice(rest);
                    padded[..tail.len()].copy_from_slice(tail);
                    self.finish.lanes(simd, T::flip(simd, T::load(simd, &lanes), bits), &mut padded);
                    tail.copy_from_slice(&padded[..tail.len()]);
                }
            }
        }
    }
}

/// Copies `from` to `to` under the signs from coordinate `start` on, a multiple of 512, and fills the rest of `to` with zeros.
#[inline(always)]
fn copy_signed<S: Simd, T: Element>(simd: S, signs: &SignsAt, start: usize, from: &[T], to: &mut [T]) {
    let (to, padding) = to.split_at_mut(from.len());
    padding.fill(T::default());
    for (call, (to, from)) in to.chunks_mut(4 * STRIP).zip(from.chunks(4 * STRIP)).enumerate() {
        let counter = start / STRIP + 4 * call;
        let words = signs.words(simd, std::array::from_fn(|k| counter + k));
        for ((to, from), words) in to.chunks_mut(STRIP).zip(from.chunks(STRIP)).zip(&words) {
            let mut bits = simd.u_load(words);
            let (whole, tail) = to.as_chunks_mut::<16>();
            let (lanes, rest) = from.as_chunks::<16>();
            for (to, lanes) in whole.iter_mut().zip(lanes) {
                T::store(simd, T::flip(simd, T::load(simd, lanes), bits), to);
                bits = simd.u_shl::<1>(bits);
            }
            if !tail.is_empty() {
                let mut padded = [T::default(); 16];
                padded[..rest.len()].copy_from_slice(rest);
                let lanes = T::load(simd, &padded);
                T::store(simd, T::flip(simd, lanes, bits), &mut padded);
                tail.copy_from_slice(&padded[..tail.len()]);
            }
        }
    }
}

/// Multiplies by the signs at one address, from coordinate 0 on.
pub(crate) struct Flip<'a, T> {
    pub(crate) signs: SignsAt,
    pub(crate) from: &'a [T],
    pub(crate) to: &'a mut [T],
}

impl<T: Element> Operation for Flip<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        copy_signed(simd, &self.signs, 0, self.from, self.to);
    }
}

/// The transform of `values` in place, as many as a power of two; `out` takes the blocks of the result.
pub(crate) struct Transform<'a, T, O> {
    pub(crate) values: &'a mut [T],
    pub(crate) out: O,
}

impl<T: Real, O: Outlet<T>> Operation for Transform<'_, T, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        walk(simd, self.values, 0, &mut self.out, Ahead::NOTHING, 0);
    }
}

/// What will be read next, fetched into the cache while the last strides of something else are done.
#[derive(Clone, Copy)]
struct Ahead<'a, T> {
    strips: &'a [T],
    /// Numbers in a strip.
    size: usize,
    /// Of the table.
    row: usize,
}

impl<T> Ahead<'_, T> {
    const NOTHING: Self = Ahead { strips: &[], size: 0, row: 0 };

    /// Fetches the 64 numbers of the row from `start` on.
    #[inline(always)]
    fn fetch<S: Simd>(&self, simd: S, start: usize) {
        let start = start / STRIP * self.size + self.row * STRIP + start % STRIP;
        if let Some(numbers) = self.strips.get(start..start + 64) {
            for line in numbers.chunks_exact(64 / size_of::<T>()) {
                simd.prefetch_far(&line[0]);
            }
        }
    }
}

/// All strides of `values`. Depth first, which is the order of the addresses: a block's large strides are done when the walk enters it,
/// and its quarters follow at once, while they are still in a near cache.
#[inline(always)]
fn walk<S: Simd, T: Real, O: Outlet<T>>(
    simd: S,
    values: &mut [T],
    first: usize,
    out: &mut O,
    ahead: Ahead<'_, T>,
    column: usize,
) {
    debug_assert!(values.len().is_power_of_two());
    if values.len() < 16 {
        let mut stride = values.len() / 2;
        while stride > 0 {
            for pair in values.chunks_exact_mut(2 * stride) {
                let (low, high) = pair.split_at_mut(stride);
                for (low, high) in low.iter_mut().zip(high) {
                    (*low, *high) = (*low + *high, *low - *high);
                }
            }
            stride /= 2;
        }
        return out.take(simd, first, values);
    }
    let resident = if values.len().ilog2() % 2 == RESIDENT.ilog2() % 2 { RESIDENT } else { RESIDENT / 2 };
    let resident = resident.min(values.len());
    for start in (0..values.len()).step_by(resident) {
        let mut size = values.len();
        while size > resident {
            if start.is_multiple_of(size) && out.wants(first + start, size) {
                pass::<S, T, 4>(simd, &mut values[start..start + size]);
            }
            size /= 4;
        }
        let block = &mut values[start..start + resident];
        finish_block(simd, block, first + start, out, ahead, column + start);
        out.take(simd, first + start, block);
    }
}

/// The strides of each of some parts of a strip.
#[inline(always)]
fn walk_strips<S: Simd, T: Real>(simd: S, strip: &mut [T], parts: usize) {
    let size = strip.len() / parts;
    for part in strip.chunks_exact_mut(size) {
        walk_strip(simd, part, u32::MAX);
    }
}

/// The strides of `values` that are not below a strip, depth first, for those of the 32 lines of a strip's row that have their bit set.
#[inline(always)]
fn walk_strip<S: Simd, T: Real>(simd: S, values: &mut [T], lines: u32) {
    let mut smallest = values.len();
    while smallest > STRIP {
        let size = smallest / radix::<S>(smallest / STRIP);
        if size == STRIP {
            break;
        }
        smallest = size;
    }
    for start in (0..values.len()).step_by(smallest) {
        let mut size = values.len();
        while size > STRIP {
            let radix = radix::<S>(size / STRIP);
            if start.is_multiple_of(size) {
                let block = &mut values[start..start + size];
                match radix {
                    8 => pass_lines::<S, T, 8>(simd, block, lines),
                    4 => pass_lines::<S, T, 4>(simd, block, lines),
                    _ => pass_lines::<S, T, 2>(simd, block, lines),
                }
            }
            size /= radix;
        }
    }
}

/// What a strip is made from.
#[derive(Clone, Copy)]
pub(crate) enum Inlet<'a, T> {
    /// A vector, padded with zeros, under signs if there are any.
    Vector(&'a [T], Option<SignsAt>),
    /// One scalar for each chosen row of the matrix, and zeros.
    Scalars(&'a [T], &'a Rows),
}

/// The strides between rows of the table, and before them Paley's matrix where the order has one; transposed for scalars.
pub(crate) struct Columns<'a, T> {
    pub(crate) order: Order,
    pub(crate) inlet: Inlet<'a, T>,
    /// The number of the strip where `out` begins.
    pub(crate) first: usize,
    /// Whole strips, each as its rows one after another. Overwritten.
    pub(crate) out: &'a mut [T],
}

impl<T: Real> Operation for Columns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { order, inlet, first, out } = self;
        let size = order.rows() * STRIP;
        for (index, strip) in out.chunks_exact_mut(size).enumerate() {
            let column = (first + index) * STRIP;
            match (order.base, inlet) {
                (12, _) => multiply_by_paleys::<S, T, 12>(simd, order, inlet, column, strip),
                (20, _) => multiply_by_paleys::<S, T, 20>(simd, order, inlet, column, strip),
                (_, Inlet::Vector(vector, signs)) => match radix::<S>(order.rows()) {
                    8 => enter::<S, T, 8>(simd, order.columns(), vector, signs, column, strip),
                    _ => enter::<S, T, 4>(simd, order.columns(), vector, signs, column, strip),
                },
                (_, Inlet::Scalars(scalars, rows)) => {
                    scatter(order.columns(), scalars, rows, column, strip);
                    walk_strip(simd, strip, rows.lines(column / STRIP));
                }
            }
            match (order.base, inlet) {
                (1, Inlet::Scalars(..)) => {}
                (1, _) => walk_strips(simd, strip, radix::<S>(order.rows()).max(4)),
                (base, _) => walk_strips(simd, strip, base),
            }
        }
    }
}

/// Puts the scalars that belong to a strip into it, and zeros elsewhere on lines that have any.
#[inline(always)]
fn scatter<T: Real>(columns: usize, scalars: &[T], rows: &Rows, column: usize, strip: &mut [T]) {
    let lines = rows.lines(column / STRIP);
    for (row, values) in strip.chunks_exact_mut(STRIP).enumerate() {
        for (k, line) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            if lines >> k & 1 == 1 {
                line.fill(T::default());
            }
        }
        let start = row * columns + column;
        if !rows.any(start, STRIP) {
            continue;
        }
        let mut next = rows.rank(start / STRIP);
        for (index, values) in values.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let mut word = rows.word(start / 64 + index);
            while word != 0 {
                values[word.trailing_zeros() as usize] = scalars[next];
                next += 1;
                word &= word - 1;
            }
        }
    }
}

/// The 512 numbers of a vector from `start` on, and their signs. Where the vector ends among them, they are signed and padded in `spare`,
/// and the signs that are left to do are none.
#[inline(always)]
fn piece<'a, S: Simd, T: Real>(
    simd: S,
    vector: &'a [T],
    start: usize,
    words: &mut [u32; 16],
    spare: &'a mut [T; STRIP],
) -> &'a [T; STRIP] {
    let rest = vector.get(start..).unwrap_or_default();
    if let Some(whole) = rest.first_chunk() {
        return whole;
    }
    spare[..rest.len()].copy_from_slice(rest);
    let mut bits = simd.u_load(words);
    for lanes in spare.as_chunks_mut::<16>().0 {
        let value = T::load(simd, lanes);
        T::store(simd, T::flip(simd, value, bits), lanes);
        bits = simd.u_shl::<1>(bits);
    }
    spare[rest.len()..].fill(T::default());
    *words = [0; 16];
    spare
}

/// `Q` rows of a strip at a time: read from the vector, signed, and the largest strides done at once.
#[inline(always)]
fn enter<S: Simd, T: Real, const Q: usize>(
    simd: S,
    columns: usize,
    vector: &[T],
    signs: Option<SignsAt>,
    column: usize,
    strip: &mut [T],
) {
    let part = strip.len() / STRIP / Q;
    let mut spare = [[T::default(); STRIP]; Q];
    let mut parts = strip.chunks_exact_mut(part * STRIP);
    let mut parts: [&mut [T]; Q] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    for row in 0..part {
        let mut words = [[0; 16]; Q];
        if let Some(signs) = signs {
            for group in 0..Q / 4 {
                let counters = std::array::from_fn(|k| ((row + (4 * group + k) * part) * columns + column) / STRIP);
                words[4 * group..][..4].copy_from_slice(&signs.words(simd, counters));
            }
        }
        let mut pieces = [&[] as &[[T; 16]]; Q];
        let mut nexts = [&[] as &[T]; Q];
        let mut bits = [simd.u_splat(0); Q];
        for (i, spare) in spare.iter_mut().enumerate() {
            let start = (row + i * part) * columns + column;
            pieces[i] = piece(simd, vector, start, &mut words[i], spare).as_chunks::<16>().0;
            let next = if row + 1 < part { start + columns } else { start - row * columns + STRIP };
            nexts[i] = vector.get(next..).unwrap_or_default();
            bits[i] = simd.u_load(&words[i]);
        }
        let mut rows: [&mut [[T; 16]]; Q] = std::array::from_fn(|_| &mut [] as &mut [[T; 16]]);
        for (to, part) in rows.iter_mut().zip(&mut parts) {
            *to = part[row * STRIP..(row + 1) * STRIP].as_chunks_mut::<16>().0;
        }
        for k in 0..STRIP / 16 {
            let mut lanes = [T::splat(simd, T::default()); Q];
            for i in 0..Q {
                if let Some(line) = nexts[i].get(16 * k) {
                    simd.prefetch(line);
                }
                lanes[i] = T::flip(simd, T::load(simd, &pieces[i][k]), bits[i]);
                bits[i] = simd.u_shl::<1>(bits[i]);
            }
            let lanes = butterfly::<S, T, Q>(simd, lanes);
            for i in 0..Q {
                T::store(simd, lanes[i], &mut rows[i][k]);
            }
        }
    }
}

/// Paley's matrix of order `B` over the rows of a strip, the strip made from the inlet first.
#[inline(always)]
fn multiply_by_paleys<S: Simd, T: Real, const B: usize>(
    simd: S,
    order: Order,
    inlet: Inlet<'_, T>,
    column: usize,
    strip: &mut [T],
) {
    let transposed = matches!(inlet, Inlet::Scalars(..));
    let mut matrix = [[T::default(); B]; B];
    for i in 0..B {
        for k in 0..B {
            let negative = if transposed { is_negative_in_paleys(B, k, i) } else { is_negative_in_paleys(B, i, k) };
            matrix[i][k] = if negative { -T::ONE } else { T::ONE };
        }
    }
    let (columns, stride) = (order.columns(), strip.len() / B);
    if let Inlet::Scalars(scalars, rows) = inlet {
        scatter(columns, scalars, rows, column, strip);
    }
    let mut spare = [T::default(); STRIP];
    let mut lines = [[[T::default(); 16]; B]; STRIP / 16];
    for row in 0..stride / STRIP {
        match inlet {
            Inlet::Vector(vector, signs) => {
                for group in 0..B / 4 {
                    let start = |k| ((4 * group + k) * (stride / STRIP) + row) * columns + column;
                    let mut words = match signs {
                        Some(signs) => signs.words(simd, std::array::from_fn(|k| start(k) / STRIP)),
                        None => [[0; 16]; 4],
                    };
                    for k in 0..4 {
                        let piece = piece(simd, vector, start(k), &mut words[k], &mut spare);
                        let mut bits = simd.u_load(&words[k]);
                        for (line, lanes) in lines.iter_mut().zip(piece.as_chunks::<16>().0) {
                            let lanes = T::flip(simd, T::load(simd, lanes), bits);
                            T::store(simd, lanes, &mut line[4 * group + k]);
                            bits = simd.u_shl::<1>(bits);
                        }
                    }
                }
            }
            Inlet::Scalars(..) => {
                for k in 0..B {
                    let piece = &strip[k * stride + row * STRIP..][..STRIP];
                    for (line, lanes) in lines.iter_mut().zip(piece.as_chunks::<16>().0) {
                        line[k] = *lanes;
                    }
                }
            }
        }
        for i in (0..B).step_by(4) {
            for (l, line) in lines.iter().enumerate() {
                let mut sums = [T::splat(simd, T::default()); 4];
                for k in 0..B {
                    let lanes = T::load(simd, &line[k]);
                    for j in 0..4 {
                        // The product is exact, so this is the sum of signed numbers in order.
                        sums[j] = T::fma(simd, lanes, T::splat(simd, matrix[i + j][k]), sums[j]);
                    }
                }
                for j in 0..4 {
                    let start = (i + j) * stride + row * STRIP + 16 * l;
                    if let Some(out) = strip[start..].first_chunk_mut() {
                        T::store(simd, sums[j], out);
                    }
                }
            }
        }
    }
}

/// The strides inside some rows of the table, whose strips are done.
pub(crate) struct FinishRows<'a, T, O> {
    pub(crate) order: Order,
    /// All strips.
    pub(crate) strips: &'a [T],
    /// For each strip, which lines of its rows are there, one bit for each of 32; the others are 0. All are where there is nothing.
    pub(crate) lines: &'a [u32],
    pub(crate) rows: std::ops::Range<usize>,
    /// A row of the table, to work in.
    pub(crate) row: &'a mut [T],
    pub(crate) out: O,
}

impl<T: Real, O: Outlet<T>> Operation for FinishRows<'_, T, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { order, strips, lines, rows, row, mut out } = self;
        let (columns, size) = (order.columns(), order.rows() * STRIP);
        // What is left after the first pass had better be a power of four of what the first cache holds, or less.
        let eighths = S::REGISTERS >= 16 && (columns <= 8 * RESIDENT || columns.ilog2() % 2 == 1);
        let parts = if eighths { 8 } else { 4 };
        for number in rows {
            match (parts, lines.is_empty()) {
                (8, true) => gather::<S, T, 8, false>(simd, strips, lines, size, number, row),
                (8, false) => gather::<S, T, 8, true>(simd, strips, lines, size, number, row),
                (_, true) => gather::<S, T, 4, false>(simd, strips, lines, size, number, row),
                (_, false) => gather::<S, T, 4, true>(simd, strips, lines, size, number, row),
            }
            // Few lines are still in the second cache.
            let ahead = if lines.is_empty() { Ahead { strips, size, row: number + 1 } } else { Ahead::NOTHING };
            for (index, part) in row.chunks_exact_mut(columns / parts).enumerate() {
                let column = index * columns / parts;
                walk(simd, part, number * columns + column, &mut out, ahead, column);
            }
        }
    }
}

/// Puts the pieces of a row together, and does its largest strides while they are in registers.
#[inline(always)]
fn gather<S: Simd, T: Real, const Q: usize, const SPARSE: bool>(
    simd: S,
    strips: &[T],
    lines: &[u32],
    size: usize,
    number: usize,
    row: &mut [T],
) {
    let part = row.len() / Q;
    let mut parts = row.chunks_exact_mut(part);
    let mut parts: [&mut [T]; Q] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let nothing = [T::default(); 16];
    for strip in 0..part / STRIP {
        let mut pieces = [&[] as &[[T; 16]]; Q];
        let mut present = [u32::MAX; Q];
        let mut rows: [&mut [[T; 16]]; Q] = std::array::from_fn(|_| &mut [] as &mut [[T; 16]]);
        for (i, (row, part)) in rows.iter_mut().zip(&mut parts).enumerate() {
            let from = strip + i * (part.len() / STRIP);
            let start = from * size + number * STRIP;
            pieces[i] = strips[start..start + STRIP].as_chunks::<16>().0;
            *row = part[strip * STRIP..(strip + 1) * STRIP].as_chunks_mut::<16>().0;
            if SPARSE {
                present[i] = lines[from];
            }
        }
        for k in 0..STRIP / 16 {
            let mut lanes = [T::splat(simd, T::default()); Q];
            for i in 0..Q {
                // An index rather than a branch, which nobody could predict.
                let line =
                    if SPARSE { [&nothing, &pieces[i][k]][(present[i] >> k & 1) as usize] } else { &pieces[i][k] };
                lanes[i] = T::load(simd, line);
            }
            let lanes = butterfly::<S, T, Q>(simd, lanes);
            for i in 0..Q {
                T::store(simd, lanes[i], &mut rows[i][k]);
            }
        }
    }
}

/// All strides of a block of n >= 16 that fits in the cache, from `first` on, as far as `out` wants them.
#[inline(always)]
fn finish_block<S: Simd, T: Element, O: Outlet<T>>(
    simd: S,
    block: &mut [T],
    first: usize,
    out: &O,
    ahead: Ahead<'_, T>,
    column: usize,
) {
    let mut size = block.len();
    while size > 64 {
        let radix = if S::REGISTERS >= 16 && size >= 512 { 8 } else { 4 };
        for (index, part) in block.chunks_exact_mut(size).enumerate() {
            if !out.wants(first + index * size, size) {
                continue;
            }
            match radix {
                8 => pass::<S, T, 8>(simd, part),
                _ => pass::<S, T, 4>(simd, part),
            }
        }
        size /= radix;
    }
    match size {
        64 => {
            for (index, part) in block.as_chunks_mut::<64>().0.iter_mut().enumerate() {
                ahead.fetch(simd, column + 64 * index);
                if out.wants(first + 64 * index, 64) {
                    last64(simd, part);
                }
            }
        }
        32 => {
            for part in block.as_chunks_mut::<32>().0 {
                last32(simd, part);
            }
        }
        _ => {
            for lanes in block.as_chunks_mut::<16>().0 {
                T::store(simd, T::hadamard(simd, T::load(simd, lanes)), lanes);
            }
        }
    }
}

/// The largest strides of a block, as many as make `Q` parts of sixteen numbers or more.
#[inline(always)]
fn pass<S: Simd, T: Element, const Q: usize>(simd: S, block: &mut [T]) {
    pass_lines::<S, T, Q>(simd, block, u32::MAX);
}

/// The same for those of every 32 lines that have their bit set: the others are 0, and not looked at.
#[inline(always)]
fn pass_lines<S: Simd, T: Element, const Q: usize>(simd: S, block: &mut [T], lines: u32) {
    let size = block.len() / Q;
    let mut parts = block.chunks_exact_mut(size);
    let parts: [&mut [[T; 16]]; Q] =
        std::array::from_fn(|_| parts.next().map(|part| part.as_chunks_mut::<16>().0).unwrap_or_default());
    for k in 0..size / 16 {
        if lines >> (k % 32) & 1 == 0 {
            continue;
        }
        let mut lanes = [T::splat(simd, T::default()); Q];
        for i in 0..Q {
            lanes[i] = T::load(simd, &parts[i][k]);
        }
        let lanes = butterfly::<S, T, Q>(simd, lanes);
        for i in 0..Q {
            T::store(simd, lanes[i], &mut parts[i][k]);
        }
    }
}

/// Strides Q/2, ..., 1 of Q = 2, 4 or 8.
#[inline(always)]
fn butterfly<S: Simd, T: Element, const Q: usize>(simd: S, mut x: [T::Lanes<S>; Q]) -> [T::Lanes<S>; Q] {
    if Q >= 8 {
        stride::<S, T, Q, 4>(simd, &mut x);
    }
    if Q >= 4 {
        stride::<S, T, Q, 2>(simd, &mut x);
    }
    stride::<S, T, Q, 1>(simd, &mut x);
    x
}

#[inline(always)]
fn stride<S: Simd, T: Element, const Q: usize, const STRIDE: usize>(simd: S, x: &mut [T::Lanes<S>; Q]) {
    for i in 0..Q {
        if i & STRIDE == 0 {
            let (low, high) = (x[i], x[i + STRIDE]);
            x[i] = T::lanes_add(simd, low, high);
            x[i + STRIDE] = T::lanes_sub(simd, low, high);
        }
    }
}

/// How many parts of a block of `parts` one pass combines: eight where there are registers for it, and never so that one is left over.
#[inline(always)]
fn radix<S: Simd>(parts: usize) -> usize {
    match parts {
        2 => 2,
        4 | 16 => 4,
        _ if S::REGISTERS >= 16 => 8,
        8 => 2,
        _ => 4,
    }
}

/// All strides of 64 numbers, without going through memory between them.
#[inline(always)]
fn last64<S: Simd, T: Element>(simd: S, block: &mut [T; 64]) {
    let [a, b, c, d] = block.as_chunks_mut::<16>().0 else { unreachable!("64 is four times 16") };
    let lanes = [T::load(simd, a), T::load(simd, b), T::load(simd, c), T::load(simd, d)];
    let [w, x, y, z] = butterfly::<S, T, 4>(simd, lanes);
    T::store(simd, T::hadamard(simd, w), a);
    T::store(simd, T::hadamard(simd, x), b);
    T::store(simd, T::hadamard(simd, y), c);
    T::store(simd, T::hadamard(simd, z), d);
}

/// All strides of 32 numbers.
#[inline(always)]
fn last32<S: Simd, T: Element>(simd: S, block: &mut [T; 32]) {
    let [low, high] = block.as_chunks_mut::<16>().0 else { unreachable!("32 is twice 16") };
    let (x, y) = (T::load(simd, low), T::load(simd, high));
    T::store(simd, T::hadamard(simd, T::lanes_add(simd, x, y)), low);
    T::store(simd, T::hadamard(simd, T::lanes_sub(simd, x, y)), high);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrices_are_orthogonal() {
        for order in
            [Order { base: 12, log: 0 }, Order { base: 20, log: 0 }, Order { base: 12, log: 3 }, Order::power(16)]
        {
            let entry = |i, k| if order.is_negative(i, k) { -1 } else { 1 };
            for i in 0..order.len() {
                for j in 0..order.len() {
                    let product: i32 = (0..order.len()).map(|k| entry(i, k) * entry(j, k)).sum();
                    assert_eq!(product, if i == j { order.len() as i32 } else { 0 }, "rows {i} and {j} of {order:?}");
                }
            }
        }
    }

    #[test]
    fn orders_cover_and_do_not_waste() {
        for dim in (1..300_000).step_by(61).chain([65_536, 65_537, 81_920, 81_921, 98_304, 98_305, 11_173_962]) {
            let order = Order::covering(dim);
            assert!(order.len() >= dim && order.len() <= dim.next_power_of_two());
            assert!(dim <= PADDED || 3 * order.len() <= 4 * dim + 3, "{dim} in {}", order.len());
            assert!(order.columns().is_power_of_two() && order.rows() * order.columns() == order.len());
            assert!(order.rows() == 1 || order.columns() >= 8 * STRIP);
        }
        assert_eq!(Order::covering(784).len(), 1024);
        assert_eq!(Order::covering(65_537).len(), 81_920);
        assert_eq!(Order::covering(11_173_962).len(), 12 << 20);
    }
}
