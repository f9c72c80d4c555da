//! TensorBoard event files: each record is a length, its masked checksum, a serialised `Event`, and that one's masked checksum.
//!
//! Only the few fields that scalars need are written; the wire format is that of protocol buffers.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use corewire_optim::run::Record;

/// An open event file.
pub struct Board {
    file: BufWriter<File>,
}

impl Board {
    /// A new event file in this folder.
    pub fn create(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
        let now = now();
        let path = folder.join(format!("events.out.tfevents.{:010}.corewire", now as u64));
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut board = Self { file: BufWriter::new(file) };
        let mut event = field_f64(1, now);
        event.extend(field_bytes(3, b"brain.Event:2"));
        board.write(&event)?;
        Ok(board)
    }

    /// Appends a round's scalars.
    pub fn round(&mut self, record: &Record) -> std::io::Result<()> {
        let mut scalars = vec![("bytes/up", record.traffic.up_bytes), ("bytes/down", record.traffic.down_bytes)];
        scalars.push(("bytes/wire", record.traffic.wire_bytes()));
        scalars.extend(record.value.map(|value| ("loss", value)));
        scalars.extend(record.score.map(|score| ("score", score.score)));
        scalars.extend(record.relative.map(|relative| ("relative", relative)));
        scalars.extend(record.outcome.gradient_norm.map(|norm| ("gradient_norm", norm)));
        scalars.extend(record.outcome.step.map(|step| ("step", step)));
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut entry = field_bytes(1, tag.as_bytes());
            entry.extend(field_f32(2, value as f32));
            summary.extend(field_bytes(1, &entry));
        }
        let mut event = field_f64(1, now());
        event.extend(field_varint(2, record.round));
        event.extend(field_bytes(5, &summary));
        self.write(&event)
    }

    /// Hands everything to the system.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }

    fn write(&mut self, event: &[u8]) -> std::io::Result<()> {
        let length = (event.len() as u64).to_le_bytes();
        self.file.write_all(&length)?;
        self.file.write_all(&masked_checksum(&length).to_le_bytes())?;
        self.file.write_all(event)?;
        self.file.write_all(&masked_checksum(event).to_le_bytes())
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The checksum of the TFRecord format: rotated and offset, so that a checksum of checksums is not degenerate.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn field_varint(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn field_f64(number: u64, value: f64) -> Vec<u8> {
    [varint(number << 3 | 1), value.to_le_bytes().to_vec()].concat()
}

fn field_f32(number: u64, value: f32) -> Vec<u8> {
    [varint(number << 3 | 5), value.to_le_bytes().to_vec()].concat()
}

fn field_bytes(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_masked_as_the_format_asks() {
        // CRC-32C of "123456789" is e3069283 (the check value of the catalogue of parametrised CRC algorithms).
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked_checksum(b"123456789"), 0xe306_9283u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }

    #[test]
    fn an_event_is_framed_by_its_length_and_two_checksums() {
        let folder = tempfile::tempdir().unwrap();
        Board::create(folder.path()).unwrap().flush().unwrap();
        let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let bytes = std::fs::read(path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(bytes.len(), 16 + length);
        assert!(bytes.windows(13).any(|window| window == b"brain.Event:2"));
    }
}
