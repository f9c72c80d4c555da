//! The numbers of a field, as they are kept: in 32 bits where those hold all of them, as they hold a network's, so that its snapshots take half
//! of the memory and of the file.

use corewire_comm::numbers::{pieces, read};

/// Numbers in as many bits as they need.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Each of them is a 32-bit float.
    Narrow(Vec<f32>),
    /// One of them is not.
    Wide(Vec<f64>),
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Narrow(numbers) => numbers.len(),
            Self::Wide(numbers) => numbers.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in 64 bits.
    pub fn to_wide(&self) -> Vec<f64> {
        match self {
            Self::Narrow(numbers) => numbers.iter().map(|&number| f64::from(number)).collect(),
            Self::Wide(numbers) => numbers.clone(),
        }
    }

    /// Bytes that each of them takes.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Narrow(_) => size_of::<f32>(),
            Self::Wide(_) => size_of::<f64>(),
        }
    }

    /// From their bytes, each of which takes so many.
    pub(crate) fn read(bytes: &[u8], width: usize) -> Option<Self> {
        match width {
            4 => Some(Self::Narrow(read(bytes).collect())),
            8 => Some(Self::Wide(read(bytes).collect())),
            _ => None,
        }
    }

    /// Their bytes, a piece at a time.
    pub(crate) fn pieces(&self) -> Box<dyn Iterator<Item = Vec<u8>> + '_> {
        match self {
            Self::Narrow(numbers) => Box::new(pieces(numbers)),
            Self::Wide(numbers) => Box::new(pieces(numbers)),
        }
    }
}

impl From<&[f64]> for Values {
    /// Bit by bit the same, words and what is not a number included.
    fn from(numbers: &[f64]) -> Self {
        let fits = |number: &f64| f64::from(*number as f32).to_bits() == number.to_bits();
        match numbers.iter().all(fits) {
            true => Self::Narrow(numbers.iter().map(|&number| number as f32).collect()),
            false => Self::Wide(numbers.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_bit_by_bit_in_as_few_bytes_as_hold_them() {
        let word = f64::from_bits(0x0123_4567_89AB_CDEF);
        let odd = f64::from_bits(f64::NAN.to_bits() | 1);
        for (numbers, width) in [
            (&[][..], 4),
            (&[0.5, -0.0, f64::INFINITY, f64::from(f32::MIN_POSITIVE)], 4),
            (&[0.5, 0.1], 8),
            (&[word], 8),
            (&[odd, 1e300, 1e-300], 8),
        ] {
            let values = Values::from(numbers);
            assert_eq!(values.width(), width, "{numbers:?}");
            let bytes: Vec<u8> = values.pieces().flatten().collect();
            let again = Values::read(&bytes, width).unwrap();
            let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&again.to_wide()), bits(numbers));
        }
    }
}
