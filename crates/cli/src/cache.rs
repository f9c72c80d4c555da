//! What is kept between runs: optima, and data sets that were fetched. Nothing in it is believed without a check.

use std::path::PathBuf;

use corewire_journal::disk::write_whole;
use corewire_optim::objective::Objective;
use corewire_sketch::{CommonRandomness, Purpose, Seed};

/// Where optima and fetched data sets are kept.
pub fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let cache = cache.or_else(|| variable("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("corewire"))
}

/// A name for a problem: its numbers, seen through a few values and gradients, and its parameters.
pub fn optimum_name(parameters: &str, pooled: &mut dyn Objective) -> String {
    let dim = pooled.dim();
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{parameters} {dim} {}", pooled.rows()).as_bytes());
    let mut gradient = vec![0.0; dim];
    for probe in 0..2 {
        let mut words = CommonRandomness::new(&Seed::reproducible(probe)).words(Purpose::Start, 0, 0);
        let x: Vec<f64> = (0..dim).map(|_| words.next_unit() - 0.5).collect();
        pooled.gradient(&x, &mut gradient);
        hasher.update(&pooled.value(&x).to_le_bytes());
        hasher.update(&corewire_comm::numbers::to_bytes(&gradient));
    }
    format!("optimum-{}", &hasher.finalize().to_hex()[..32])
}

fn line(value: f64) -> String {
    let bits = format!("{:016x}", value.to_bits());
    let checksum = crc32c::crc32c(bits.as_bytes());
    format!("{bits} {checksum:08x}\n")
}

/// An optimum that was found before, if its line is whole.
pub fn read_optimum(name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(folder()?.join(name)).ok()?;
    let bits = text.split_whitespace().next()?;
    let value = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
    (line(value) == text && value.is_finite()).then_some(value)
}

/// Keeps an optimum. A cache that cannot be written costs only the next run's time.
pub fn write_optimum(name: &str, value: f64) {
    if let Some(folder) = folder() {
        let _ = std::fs::create_dir_all(&folder);
        let _ = write_whole(&folder.join(name), line(value).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_is_believed() {
        let whole = line(0.25);
        assert_eq!(whole, "3fd0000000000000 ".to_owned() + &whole[17..]);
        let parse = |text: &str| {
            let bits = text.split_whitespace().next()?;
            let value = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
            (line(value) == text && value.is_finite()).then_some(value)
        };
        assert_eq!(parse(&whole), Some(0.25));
        assert_eq!(parse(&line(f64::NAN)), None);
        assert_eq!(parse(&line(f64::INFINITY)), None);
        assert!((0..whole.len()).all(|length| parse(&whole[..length]).is_none()));
    }
}
