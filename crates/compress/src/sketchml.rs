//! SketchML: quantile buckets of the values, and gaps between the keys.

use crate::bits::{BitReader, BitWriter, index_bits};
use crate::codec::{Address, Codec, CodecError, Law, admit_clamped, admit_message, index_dim};

/// The entries that are not zero, each as the mean of a quantile bucket.
///
/// - Rule: the positive entries, sorted, fall into q/2 buckets of equal count, the negative ones too; C(v)_i = the mean of v_i's
///   bucket, and zero stays zero.
/// - Law: contractive with delta = 1/ceil(2 d/q), always: C projects on the indicators of the buckets, and a bucket of k entries of
///   one sign keeps at least 1/k of its energy.
/// - Bytes: 4 a bucket, and for every entry Elias's omega code of the gap to the one before and ceil(log2 q) bits.
/// - Differs from the paper: buckets are exact instead of from a quantile sketch, their mean stands for them instead of their middle,
///   gaps have bits instead of bytes, and the third stage, a lossy hash table of bucket numbers (MinMaxSketch), is left out.
/// - Checked: against equal-count buckets by hand, and the law by all codecs' test.
/// - Reference: SketchML: Accelerating Distributed Machine Learning with Data Sketches, J. Jiang, F. Fu, T. Yang, B. Cui, 2018.
#[derive(Clone, Debug)]
pub struct SketchMl {
    dim: usize,
    /// Buckets of one sign.
    buckets: usize,
}

impl SketchMl {
    /// At most `buckets` (q) quantile buckets, of both signs together.
    ///
    /// # Panics
    /// If `buckets` is below 2, or odd, or above 2^16, or `dim` is not below 2^32.
    pub fn new(dim: usize, buckets: usize) -> Self {
        assert!(
            (2..=1 << 16).contains(&buckets) && buckets.is_multiple_of(2),
            "quantile buckets are an even number between 2 and 2^16"
        );
        Self { dim: index_dim(dim), buckets: buckets / 2 }
    }
}

impl Codec for SketchMl {
    fn name(&self) -> &'static str {
        "sketchml"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        Law::Contractive { delta: 1.0 / self.dim.div_ceil(self.buckets).max(1) as f64 }
    }

    fn fixed_len(&self) -> Option<usize> {
        None
    }

    fn encode(&mut self, _: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        let mut means = Vec::new();
        let mut bucket_of = vec![0; self.dim];
        for negative in [false, true] {
            let mut group: Vec<usize> =
                (0..self.dim).filter(|&i| vector[i] != 0.0 && (vector[i] < 0.0) == negative).collect();
            group.sort_by(|&a, &b| vector[a].total_cmp(&vector[b]).then(a.cmp(&b)));
            for members in group.chunks(group.len().div_ceil(self.buckets).max(1)) {
                members.iter().for_each(|&i| bucket_of[i] = means.len());
                means.push(members.iter().map(|&i| vector[i]).sum::<f64>() / members.len() as f64);
            }
        }
        let mut writer = BitWriter::new(message);
        writer.write(means.len() as u64, index_bits(2 * self.buckets + 1));
        means.iter().for_each(|&mean| writer.write_f32(mean));
        let mut before = 0;
        for i in (0..self.dim).filter(|&i| vector[i] != 0.0) {
            writer.write_omega((i + 1 - before) as u64);
            writer.write(bucket_of[i] as u64, index_bits(means.len()));
            before = i + 1;
        }
        // The last gap leads one past the vector: its end.
        writer.write_omega((self.dim + 1 - before) as u64);
        writer.finish();
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(None, message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        let count = reader.read_below(2 * self.buckets + 1, "a count")?;
        let means: Vec<f64> = (0..count).map(|_| reader.read_f32()).collect::<Result<_, _>>()?;
        out.fill(0.0);
        let mut before = 0;
        loop {
            let at = before + reader.read_omega()?;
            if at == self.dim as u64 + 1 {
                return reader.finish();
            }
            let Some(x) = out.get_mut(at as usize - 1) else {
                return Err(CodecError::Range { what: "a gap" });
            };
            let bucket = reader.read(index_bits(count))? as usize;
            *x = *means.get(bucket).ok_or(CodecError::Range { what: "a bucket" })?;
            before = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_the_means_of_equal_buckets_and_zeros_stay() {
        let vector = [4.0, 0.0, 1.0, -7.0, 2.0, 3.0, 0.0];
        let mut codec = SketchMl::new(7, 4);
        let (mut message, mut out) = (Vec::new(), [9.0; 7]);
        codec.encode(Address::default(), &vector, &mut message);
        codec.decode(Address::default(), &message, &mut out).unwrap();
        assert_eq!(out, [3.5, 0.0, 1.5, -7.0, 1.5, 3.5, 0.0]);
    }
}
