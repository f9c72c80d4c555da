//! The secret that all machines share. Reading and writing files, and their permissions, belong to the caller.

use std::fmt;

use zeroize::Zeroizing;

/// A 256-bit secret from which all common randomness follows.
///
/// It is wiped from memory on drop, and shown only as its [`Commitment`].
#[derive(Clone)]
pub struct Seed(Zeroizing<[u8; 32]>);

/// What may be shown of a [`Seed`]: machines compare it to learn whether they share the seed, and it tells nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Commitment([u8; 16]);

/// A text that is not a seed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a seed is 64 hexadecimal digits, found {found}")]
pub struct SeedError {
    found: String,
}

impl Seed {
    /// A seed from the system's generator.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut bytes[..])?;
        Ok(Self(bytes))
    }

    /// A seed from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A seed that anyone can guess: for reproducible runs, never for private ones.
    pub fn reproducible(number: u64) -> Self {
        Self::from_bytes(blake3::derive_key("corewire 2026 reproducible seed from an integer", &number.to_le_bytes()))
    }

    /// A seed from its text form, 64 hexadecimal digits with blanks around them.
    pub fn parse(text: &str) -> Result<Self, SeedError> {
        let text = text.trim();
        if text.len() != 64 {
            let found = format!("{} characters", text.chars().count());
            return Err(SeedError { found });
        }
        let mut bytes = Zeroizing::new([0; 32]);
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |c: u8| (c as char).to_digit(16);
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                let found = "a character that is none".to_owned();
                return Err(SeedError { found });
            };
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(bytes))
    }

    /// The text form, for a file that only its owner reads. The one way to get the secret out.
    pub fn reveal(&self) -> String {
        hex(&self.0[..])
    }

    /// What may be shown.
    pub fn commitment(&self) -> Commitment {
        let digest = blake3::derive_key("corewire 2026 commitment to a seed", &self.0[..]);
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        Commitment(short)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Commitment {
    /// Its sixteen bytes.
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seed({})", self.commitment())
    }
}

impl fmt::Debug for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_survives_its_text_form() {
        let seed = Seed::reproducible(7);
        let again = Seed::parse(&format!(" {}\n", seed.reveal())).unwrap();
        assert_eq!(seed.bytes(), again.bytes());
    }

    #[test]
    fn a_seed_is_never_shown() {
        let seed = Seed::reproducible(7);
        assert!(!format!("{seed:?}").contains(&seed.reveal()[..16]));
        assert_ne!(&seed.reveal()[..32], seed.commitment().to_string());
    }

    #[test]
    fn bad_texts_are_refused_with_what_was_found() {
        assert!(Seed::parse("abc").unwrap_err().to_string().contains("3 characters"));
        assert!(Seed::parse(&"g".repeat(64)).is_err());
        assert!(Seed::parse(&"é".repeat(32)).is_err());
    }

    #[test]
    fn random_seeds_differ() {
        assert_ne!(Seed::random().unwrap().bytes(), Seed::random().unwrap().bytes());
    }
}
