//! Errors as bytes: a tag, two numbers, a text. Every process must end with the very same error.

use corewire_comm::CommError;

/// The bytes of an error.
pub fn encode(error: &CommError) -> Vec<u8> {
    let (tag, first, second, text) = match error {
        CommError::Left { rank, exchange } => (0, *rank, *exchange, ""),
        CommError::Damaged { rank, exchange, what } => (1, *rank, *exchange, &what[..]),
        CommError::Refused { rank, what } => (2, *rank, 0, &what[..]),
        CommError::Engine { process, what } => (3, *process, 0, &what[..]),
    };
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(first as u64).to_le_bytes());
    bytes.extend_from_slice(&second.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// The error that the bytes stand for, if they stand for one.
pub fn decode(bytes: &[u8]) -> Option<CommError> {
    let (&tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first_chunk::<8>()?;
    let (second, text) = rest.split_first_chunk::<8>()?;
    let first = usize::try_from(u64::from_le_bytes(*first)).ok()?;
    let exchange = u64::from_le_bytes(*second);
    let what = str::from_utf8(text).ok()?.to_owned();
    match tag {
        0 => Some(CommError::Left { rank: first, exchange }),
        1 => Some(CommError::Damaged { rank: first, exchange, what }),
        2 => Some(CommError::Refused { rank: first, what }),
        3 => Some(CommError::Engine { process: first, what }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_survives_and_nothing_else_is_one() {
        let what = || "it sent `ü`".to_owned();
        let errors = [
            CommError::Left { rank: 3, exchange: u64::MAX },
            CommError::Damaged { rank: usize::MAX, exchange: 7, what: what() },
            CommError::Refused { rank: 0, what: String::new() },
            CommError::Engine { process: 2, what: what() },
        ];
        for error in errors {
            let bytes = encode(&error);
            assert_eq!(decode(&bytes), Some(error));
            for length in 0..17 {
                assert_eq!(decode(&bytes[..length]), None);
            }
        }
        assert_eq!(decode(&[4; 17]), None);
        assert_eq!(decode(&[&[2; 17][..], &[0xff]].concat()), None);
    }
}
