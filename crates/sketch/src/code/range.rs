//! A binary range coder whose messages end as early as they can. Where the probabilities come from is not its business.
//!
//! Subdivision as in Martin's range coder (1979), 32 bits wide, with carries carried back into what was written. The end of a message is
//! the shortest string of bytes in the final interval, read as if zeros followed for ever; so trailing zeros are cut, and an empty
//! message is one too.

/// Probabilities are in units of 2^-16.
const PRECISION: u32 = 16;
/// The range never falls below this, so that a unit of probability is at least 2^8 wide.
const BOTTOM: u32 = 1 << 24;

/// Writes decisions.
pub(super) struct Encoder<'a> {
    low: u64,
    range: u32,
    start: usize,
    out: &'a mut Vec<u8>,
}

impl<'a> Encoder<'a> {
    /// Appends to `out`.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { low: 0, range: u32::MAX, start: out.len(), out }
    }

    /// Writes a decision that is true with `probability`/65536; the probability is neither 0 nor 1.
    pub(super) fn decide(&mut self, decision: bool, probability: u16) {
        let bound = (self.range >> PRECISION) * u32::from(probability);
        if decision {
            self.range = bound;
        } else {
            self.low += u64::from(bound);
            self.range -= bound;
        }
        self.normalise();
    }

    /// Writes the lowest `count` bits, at most 32 of them, each as likely as not.
    pub(super) fn raw(&mut self, bits: u32, count: u32) {
        for (shift, width) in bytewise(count) {
            self.range >>= width;
            self.low += u64::from(self.range) * u64::from(bits >> shift & ((1 << width) - 1));
            self.normalise();
        }
    }

    /// Ends the message.
    pub(super) fn finish(mut self) {
        for bytes in 0..=4u32 {
            let mask = (1u64 << (32 - 8 * bytes)) - 1;
            let value = (self.low + mask) & !mask;
            if value < self.low + u64::from(self.range) {
                self.low = value;
                for _ in 0..bytes {
                    self.shift();
                }
                // With no byte left to write, the carry still has to go into what was written.
                self.carry();
                break;
            }
        }
        while self.out.len() > self.start && self.out.last() == Some(&0) {
            self.out.pop();
        }
    }

    fn normalise(&mut self) {
        while self.range < BOTTOM {
            self.shift();
            self.range <<= 8;
        }
    }

    fn shift(&mut self) {
        self.carry();
        self.out.push((self.low >> 24) as u8);
        self.low = (self.low << 8) & 0xffff_ffff;
    }

    fn carry(&mut self) {
        if self.low >> 32 != 0 {
            self.low &= 0xffff_ffff;
            for byte in self.out[self.start..].iter_mut().rev() {
                *byte = byte.wrapping_add(1);
                if *byte != 0 {
                    break;
                }
            }
        }
    }
}

/// Cuts `count` bits into pieces of at most eight, the highest first: where each begins, and how wide it is.
fn bytewise(count: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..count.div_ceil(8)).rev().map(move |piece| (8 * piece, (count - 8 * piece).min(8)))
}

/// Reads decisions; past the end it reads zeros.
pub(super) struct Decoder<'a> {
    code: u32,
    range: u32,
    input: &'a [u8],
    position: usize,
}

impl<'a> Decoder<'a> {
    /// Reads all of `input`.
    pub(super) fn new(input: &'a [u8]) -> Self {
        let mut decoder = Self { code: 0, range: u32::MAX, input, position: 0 };
        for _ in 0..4 {
            decoder.code = decoder.code << 8 | decoder.byte();
        }
        decoder
    }

    /// Reads a decision that was written with the same probability.
    pub(super) fn decide(&mut self, probability: u16) -> bool {
        let bound = (self.range >> PRECISION) * u32::from(probability);
        let decision = self.code < bound;
        if decision {
            self.range = bound;
        } else {
            self.code -= bound;
            self.range -= bound;
        }
        self.normalise();
        decision
    }

    fn normalise(&mut self) {
        while self.range < BOTTOM {
            self.code = self.code << 8 | self.byte();
            self.range <<= 8;
        }
    }

    /// Reads `count` bits, at most 32.
    pub(super) fn raw(&mut self, count: u32) -> u32 {
        bytewise(count).fold(0, |bits, (_, width)| {
            self.range >>= width;
            // Bytes that no encoder wrote may point beyond the last of them.
            let chunk = (self.code / self.range).min((1 << width) - 1);
            self.code -= chunk * self.range;
            self.normalise();
            bits << width | chunk
        })
    }

    /// Whether the message held just what was read: nothing unread, and no zero at its end that the encoder would have cut.
    pub(super) fn is_exhausted(&self) -> bool {
        self.position >= self.input.len() && self.input.last() != Some(&0)
    }

    fn byte(&mut self) -> u32 {
        let byte = self.input.get(self.position).copied().unwrap_or(0);
        self.position += 1;
        u32::from(byte)
    }
}
