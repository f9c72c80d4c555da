//! Decimal numbers from bytes: fast where the digits are few, and correctly rounded always.

/// Why a piece of text is not a number of a data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NotANumber {
    /// It does not read as a number.
    Malformed,
    /// It is `nan` or `inf`.
    NotFinite,
    /// It lies outside the range of a 64-bit float.
    TooLarge,
}

impl NotANumber {
    /// The end of a sentence that began with the text in question.
    pub(crate) fn words(self) -> &'static str {
        match self {
            NotANumber::Malformed => "is not a number",
            NotANumber::NotFinite => "is not finite; remove the row or fill the value in",
            NotANumber::TooLarge => "is too large for a 64-bit float; scale the column down",
        }
    }
}

/// Ten to the power of k, exact in a float up to k = 22.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Reads a finite number.
///
/// Up to 15 digits with a point among them are an exact integer over an exact power of ten, so that one division rounds
/// correctly (Clinger 1990); everything else goes to the standard library.
pub(crate) fn parse(text: &[u8]) -> Result<f64, NotANumber> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.len() > 16 {
        return slow(text);
    }
    let (mut mantissa, mut count, mut point) = (0u64, 0usize, None);
    for (at, &byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                mantissa = mantissa * 10 + u64::from(byte - b'0');
                count += 1;
            }
            b'.' if point.is_none() => point = Some(at),
            _ => return slow(text),
        }
    }
    if count == 0 || count > 15 {
        return slow(text);
    }
    let decimals = point.map_or(0, |at| digits.len() - at - 1);
    let magnitude = mantissa as f64 / POWERS[decimals];
    Ok(if negative { -magnitude } else { magnitude })
}

#[cold]
fn slow(text: &[u8]) -> Result<f64, NotANumber> {
    let value: f64 = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(NotANumber::Malformed)?;
    if value.is_finite() {
        Ok(value)
    } else if text.iter().any(u8::is_ascii_digit) {
        Err(NotANumber::TooLarge)
    } else {
        Err(NotANumber::NotFinite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_the_bits_of_the_standard_library() {
        let samples = [
            "0",
            "-0",
            "+3",
            "1",
            "12345",
            "0.1",
            "-0.30000001",
            "123456789012345",
            "1234567.89012345",
            ".5",
            "5.",
            "1e3",
            "1E-7",
            "-2.5e+10",
            "0.000000000000001",
            "1234567890123456",
            "99999999999999999999",
            "1e-400",
            "4.9e-324",
            "1.7976931348623157e308",
        ];
        for sample in samples {
            let expected: f64 = sample.parse().unwrap();
            assert_eq!(parse(sample.as_bytes()).unwrap().to_bits(), expected.to_bits(), "{sample}");
        }
    }

    #[test]
    fn what_is_no_finite_number_is_refused_with_its_reason() {
        for sample in ["", "-", "+", ".", "-.", "1.2.3", "a", "1a", "0x10", "1e", "--1", "1_000", "1 "] {
            assert_eq!(parse(sample.as_bytes()), Err(NotANumber::Malformed), "{sample}");
        }
        for sample in ["nan", "NaN", "inf", "-inf", "infinity", "+Infinity"] {
            assert_eq!(parse(sample.as_bytes()), Err(NotANumber::NotFinite), "{sample}");
        }
        for sample in ["1e309", "-1e999"] {
            assert_eq!(parse(sample.as_bytes()), Err(NotANumber::TooLarge), "{sample}");
        }
        assert_eq!(parse(b"\xff"), Err(NotANumber::Malformed));
    }
}
