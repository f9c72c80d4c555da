//! The envelope of a message: its length, whether control words ride in front of it, and a checksum where the way has none of its own. The
//! number of the exchange is known at both ends and does not travel; the checksum covers it.

use crate::numbers::{push_count, take_bytes, take_count, unzigzag, zigzag};

/// A message out of its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The words that rode along; as many as were asked for.
    pub control: Vec<i32>,
    /// The message.
    pub message: &'a [u8],
    /// Bytes of the control words.
    pub control_bytes: u64,
    /// Bytes of the envelope itself.
    pub frame_bytes: u64,
}

/// Puts a message into its envelope. Control words that are all zero cost nothing.
pub fn seal(sequence: u64, control: &[i32], message: &[u8], checked: bool) -> Vec<u8> {
    let rides = control.iter().any(|&word| word != 0);
    let mut framed = Vec::with_capacity(message.len() + 12 + 5 * control.len());
    push_count((message.len() as u64) << 1 | u64::from(rides), &mut framed);
    if rides {
        control.iter().for_each(|&word| push_count(zigzag(i64::from(word)), &mut framed));
    }
    framed.extend_from_slice(message);
    if checked {
        let checksum = checksum(sequence, &framed);
        framed.extend_from_slice(&checksum.to_le_bytes());
    }
    framed
}

/// Takes a message and `words` control words out of their envelope, or says what is wrong with it.
pub fn open(sequence: u64, words: usize, framed: &[u8], checked: bool) -> Result<Opened<'_>, String> {
    let broken = || format!("{} bytes are not an envelope", framed.len());
    let mut rest = framed;
    if checked {
        let (body, sum) = framed.split_last_chunk::<4>().ok_or_else(broken)?;
        if checksum(sequence, body) != u32::from_le_bytes(*sum) {
            return Err("its checksum does not match".to_owned());
        }
        rest = body;
    }
    let head = take_count(&mut rest).ok_or_else(broken)?;
    let mut control = vec![0; words];
    let before = rest.len();
    if head & 1 == 1 {
        for word in &mut control {
            let number = take_count(&mut rest).ok_or_else(broken)?;
            *word = i32::try_from(unzigzag(number)).map_err(|_| broken())?;
        }
    }
    let control_bytes = (before - rest.len()) as u64;
    let claimed = head >> 1;
    let message = take_bytes(&mut rest, claimed).filter(|_| rest.is_empty());
    let Some(message) = message else {
        return Err(format!("it claims {claimed} bytes and has {}", rest.len()));
    };
    let frame_bytes = framed.len() as u64 - message.len() as u64 - control_bytes;
    Ok(Opened { control, message, control_bytes, frame_bytes })
}

fn checksum(sequence: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_truncation_and_every_bit_flip_is_seen() {
        for control in [[0, 0], [7, -1_000_000]] {
            let framed = seal(7, &control, b"eleven byte", true);
            let opened = open(7, 2, &framed, true).unwrap();
            assert_eq!((opened.message, &opened.control[..]), (&b"eleven byte"[..], &control[..]));
            assert_eq!(opened.frame_bytes, 5);
            assert_eq!(opened.control_bytes, if control == [0, 0] { 0 } else { 1 + 3 });
            assert!(open(8, 2, &framed, true).is_err());
            for length in 0..framed.len() {
                assert!(open(7, 2, &framed[..length], true).is_err());
            }
            for bit in 0..framed.len() * 8 {
                let mut bent = framed.clone();
                bent[bit / 8] ^= 1 << (bit % 8);
                assert!(open(7, 2, &bent, true).is_err());
            }
        }
    }

    #[test]
    fn a_small_message_on_a_sound_way_costs_one_byte_more() {
        let framed = seal(3, &[0], &[9; 63], false);
        assert_eq!(framed.len(), 64);
        assert_eq!(open(3, 1, &framed, false).unwrap().frame_bytes, 1);
        assert_eq!(seal(3, &[0], &[9; 64], false).len(), 66);
    }
}
