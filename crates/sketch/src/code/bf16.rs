//! The upper half of an `f32`, reached by stochastic rounding so that it is unbiased.

/// One of the two neighbours of `value` among the 16-bit floats, so that the mean over `uniform` (32 random bits) is `value`.
/// Values beyond the largest finite one saturate; non-finite values keep their class.
pub fn round_to_bf16(value: f32, uniform: u32) -> u16 {
    if !value.is_finite() {
        // A quiet bit keeps a NaN from becoming an infinity when its low half is cut off.
        return (value.to_bits() >> 16) as u16 | u16::from(value.is_nan()) << 6;
    }
    let rounded = value.to_bits().wrapping_add(uniform >> 16);
    let rounded = (rounded >> 16) as u16;
    let infinite = rounded & 0x7f80 == 0x7f80;
    if infinite { rounded & 0x8000 | 0x7f7f } else { rounded }
}

/// The value of a 16-bit float.
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_unbiased_over_all_uniforms() {
        for value in [1.0f32, -1.234_567, 3.0e-20, 7.7e30, -0.0] {
            // Only the upper 16 bits count, so the mean over them is exact.
            let sum: f64 = (0..1u32 << 16).map(|u| f64::from(bf16_to_f32(round_to_bf16(value, u << 16)))).sum();
            let mean = sum / f64::from(1u32 << 16);
            assert!((mean - f64::from(value)).abs() <= 1e-12 * f64::from(value).abs(), "{value}: {mean}");
        }
    }

    #[test]
    fn the_ends_of_the_range_have_an_answer() {
        assert_eq!(bf16_to_f32(round_to_bf16(f32::MAX, u32::MAX)), 3.389_531_4e38);
        assert_eq!(bf16_to_f32(round_to_bf16(f32::MIN, u32::MAX)), -3.389_531_4e38);
        assert!(bf16_to_f32(round_to_bf16(f32::NAN, 0)).is_nan());
        assert_eq!(bf16_to_f32(round_to_bf16(f32::INFINITY, u32::MAX)), f32::INFINITY);
    }
}
