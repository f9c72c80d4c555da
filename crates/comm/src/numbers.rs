//! Numbers as bytes: little-endian words, integers of few bits, and the sums of messages made of them.

use crate::collective::CommError;

/// A number that travels as a little-endian word of fixed width.
pub trait Number: Copy {
    /// Its bytes.
    const WIDTH: usize;
    /// Appends it.
    fn push(self, out: &mut Vec<u8>);
    /// Reads it from exactly `WIDTH` bytes.
    fn read(bytes: &[u8]) -> Self;
    /// The sum; of integers it wraps on every machine alike.
    fn plus(self, other: Self) -> Self;
}

macro_rules! number {
    ($type:ty, $add:expr) => {
        impl Number for $type {
            const WIDTH: usize = size_of::<$type>();

            fn push(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("a word of its width"))
            }

            fn plus(self, other: Self) -> Self {
                $add(self, other)
            }
        }
    };
}

number!(i32, i32::wrapping_add);
number!(i64, i64::wrapping_add);
number!(u64, u64::wrapping_add);
number!(f32, |a, b| a + b);
number!(f64, |a, b| a + b);

/// Appends all numbers.
pub fn push<T: Number>(numbers: &[T], out: &mut Vec<u8>) {
    out.reserve(numbers.len() * T::WIDTH);
    numbers.iter().for_each(|number| number.push(out));
}

/// The numbers as bytes.
pub fn to_bytes<T: Number>(numbers: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push(numbers, &mut bytes);
    bytes
}

/// The numbers as bytes, a piece at a time: a long vector need not lie in memory twice.
pub fn pieces<T: Number>(numbers: &[T]) -> impl Iterator<Item = Vec<u8>> {
    numbers.chunks(8192).map(to_bytes)
}

/// Reads numbers; bytes at the end that are no whole number are left.
pub fn read<T: Number>(bytes: &[u8]) -> impl ExactSizeIterator<Item = T> {
    bytes.chunks_exact(T::WIDTH).map(T::read)
}

/// Appends numbers as 32-bit floats, or as 64-bit ones if `double`. What 32 bits cannot hold becomes the largest that they can.
pub fn push_floats(numbers: &[f64], double: bool, out: &mut Vec<u8>) {
    match double {
        true => push(numbers, out),
        false => numbers.iter().for_each(|&number| narrow(number).push(out)),
    }
}

/// The nearest 32-bit float that is finite wherever `number` is.
pub fn narrow(number: f64) -> f32 {
    if number.is_finite() { (number as f32).clamp(f32::MIN, f32::MAX) } else { number as f32 }
}

/// Overwrites `out` with such floats; `false` if there are not as many.
#[must_use]
pub fn read_floats(bytes: &[u8], double: bool, out: &mut [f64]) -> bool {
    let width = if double { 8 } else { 4 };
    if bytes.len() != out.len() * width {
        return false;
    }
    match double {
        true => out.iter_mut().zip(read::<f64>(bytes)).for_each(|(out, number)| *out = number),
        false => out.iter_mut().zip(read::<f32>(bytes)).for_each(|(out, number)| *out = f64::from(number)),
    }
    true
}

/// The sums of messages of as many numbers each, in the order of the messages: every engine and every run must end with the same bits.
pub fn sum<T: Number>(messages: &[&[u8]]) -> Result<Vec<u8>, CommError> {
    let length = messages[0].len();
    if let Some(rank) = messages.iter().position(|message| message.len() != length || message.len() % T::WIDTH != 0) {
        let what = format!("it sums {} bytes where machine 0 sums {length}", messages[rank].len());
        return Err(CommError::Refused { rank, what });
    }
    let mut sums: Vec<T> = read(messages[0]).collect();
    for message in &messages[1..] {
        sums.iter_mut().zip(read::<T>(message)).for_each(|(sum, number)| *sum = sum.plus(number));
    }
    Ok(to_bytes(&sums))
}

/// Seven bits per byte, the lowest first; the top bit says that more follow.
pub fn push_count(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes such a number off the front.
pub fn take_count(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Takes that many bytes off the front.
pub fn take_bytes<'a>(rest: &mut &'a [u8], count: u64) -> Option<&'a [u8]> {
    let (taken, tail) = rest.split_at_checked(usize::try_from(count).ok()?)?;
    *rest = tail;
    Some(taken)
}

/// Small magnitudes first: 0, -1, 1, -2, 2 ..
pub fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Undoes [`zigzag`].
pub fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// The longest run of ones in a Rice code; longer quotients escape to a whole word.
const ESCAPE: u64 = 24;

/// Integers in a Rice code: a byte for its parameter, then per integer the quotient in ones and the remainder in bits. What a star makes of
/// integers that are to be summed: it needs no state, and comes within a third of a bit of the entropy of small integers.
pub fn pack_integers(integers: impl ExactSizeIterator<Item = i64> + Clone) -> Vec<u8> {
    let bits = |parameter: u32| -> u64 {
        let length = |number: i64| {
            let quotient = zigzag(number) >> parameter;
            if quotient < ESCAPE { quotient + 1 + u64::from(parameter) } else { ESCAPE + 64 }
        };
        integers.clone().map(length).sum()
    };
    // The best parameter is about the logarithm of the mean.
    let total = integers.clone().fold(0u64, |sum, number| sum.saturating_add(zigzag(number)));
    let about = (total / integers.len().max(1) as u64).saturating_add(1).ilog2().min(38);
    let parameter = (about.saturating_sub(1)..=about + 1).min_by_key(|&parameter| bits(parameter)).unwrap_or(0);
    let mut out = Bits { bytes: vec![parameter as u8], filled: 0 };
    for number in integers {
        let number = zigzag(number);
        let quotient = number >> parameter;
        if quotient < ESCAPE {
            (0..quotient).for_each(|_| out.push(1, 1));
            out.push(0, 1);
            out.push(number, parameter);
        } else {
            (0..ESCAPE).for_each(|_| out.push(1, 1));
            out.push(number, 64);
        }
    }
    out.bytes
}

/// Undoes [`pack_integers`]; `None` unless the bytes are such a code of just so many integers.
pub fn unpack_integers(bytes: &[u8], count: usize) -> Option<Vec<i64>> {
    let (&parameter, bytes) = bytes.split_first()?;
    let mut at = 0;
    let mut bit = || {
        let bit = bytes.get(at / 8)? >> (at % 8) & 1;
        at += 1;
        Some(u64::from(bit))
    };
    let mut integers = Vec::with_capacity(count.min(8 * bytes.len()));
    for _ in 0..count {
        let mut quotient = 0;
        while quotient < ESCAPE && bit()? == 1 {
            quotient += 1;
        }
        let (width, high) = if quotient < ESCAPE { (u32::from(parameter), quotient) } else { (64, 0) };
        let mut number = if width < 64 { high.checked_shl(width)? } else { 0 };
        for position in 0..width {
            number |= bit()? << position;
        }
        integers.push(unzigzag(number));
    }
    (at.div_ceil(8) == bytes.len()).then_some(integers)
}

struct Bits {
    bytes: Vec<u8>,
    /// Bits of the last byte that are taken; 0 for all.
    filled: u32,
}

impl Bits {
    fn push(&mut self, word: u64, count: u32) {
        for position in 0..count {
            if self.filled == 0 {
                self.bytes.push(0);
            }
            let last = self.bytes.last_mut().expect("a byte was just pushed");
            *last |= ((word >> position & 1) as u8) << self.filled;
            self.filled = (self.filled + 1) % 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_integers_come_back_and_small_ones_are_short() {
        let cases: [Vec<i64>; 5] = [
            vec![],
            vec![0; 100],
            (0..200).map(|i| i % 5 - 2).collect(),
            vec![i64::MIN, i64::MAX, 0, -1, i64::from(i32::MIN)],
            (0..64).map(|i| 1 << (i % 40)).collect(),
        ];
        for integers in cases {
            let packed = pack_integers(integers.iter().copied());
            assert_eq!(unpack_integers(&packed, integers.len()).unwrap(), integers);
            assert!(unpack_integers(&packed, integers.len() + 64).is_none());
            for length in 0..packed.len() {
                assert!(unpack_integers(&packed[..length], integers.len()).is_none());
            }
        }
        assert_eq!(pack_integers(vec![0; 800].into_iter()).len(), 101);
    }

    #[test]
    fn counts_take_seven_bits_a_byte() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::MAX] {
            let mut bytes = Vec::new();
            push_count(number, &mut bytes);
            assert_eq!(take_count(&mut &bytes[..]), Some(number));
            assert_eq!(take_count(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!([0, -1, 1, -2, i64::MIN].map(|i| unzigzag(zigzag(i))), [0, -1, 1, -2, i64::MIN]);
    }

    #[test]
    fn narrowing_keeps_finite_numbers_finite() {
        assert_eq!(narrow(1e300), f32::MAX);
        assert_eq!(narrow(-1e300), f32::MIN);
        assert!(narrow(f64::NAN).is_nan() && narrow(f64::INFINITY).is_infinite());
    }
}
