//! The envelope of a message: its sequence number and a checksum over both. What is inside is not its business.

/// Bytes that an envelope adds: eight of sequence number, four of length, four of checksum.
pub const FRAME_BYTES: usize = 16;

/// Puts a message into its envelope.
pub fn seal(sequence: u64, message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(FRAME_BYTES + message.len());
    framed.extend_from_slice(&sequence.to_le_bytes());
    framed.extend_from_slice(&(message.len() as u32).to_le_bytes());
    framed.extend_from_slice(message);
    let checksum = crc32c::crc32c(&framed);
    framed.extend_from_slice(&checksum.to_le_bytes());
    framed
}

/// Takes a message out of its envelope, or says what is wrong with it.
pub fn open(sequence: u64, framed: &[u8]) -> Result<&[u8], String> {
    let Some((body, checksum)) = framed.split_last_chunk::<4>() else {
        return Err(format!("{} bytes are no envelope", framed.len()));
    };
    let (Some((number, rest)), true) = (body.split_first_chunk::<8>(), body.len() >= 12) else {
        return Err(format!("{} bytes are no envelope", framed.len()));
    };
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err("its checksum does not fit".to_owned());
    }
    let (length, message) = rest.split_at(4);
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if length != message.len() {
        return Err(format!("it claims {length} bytes and has {}", message.len()));
    }
    let number = u64::from_le_bytes(*number);
    if number != sequence {
        return Err(format!("it belongs to exchange {number}, not {sequence}"));
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_truncation_and_every_bit_flip_is_seen() {
        let framed = seal(7, b"eleven byte");
        assert_eq!(open(7, &framed).unwrap(), b"eleven byte");
        assert!(open(8, &framed).is_err());
        for length in 0..framed.len() {
            assert!(open(7, &framed[..length]).is_err());
        }
        for bit in 0..framed.len() * 8 {
            let mut bent = framed.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(open(7, &bent).is_err());
        }
    }
}
