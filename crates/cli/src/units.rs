//! Numbers as people read them: decimal byte units, times, counts and powers of ten. Knows nothing of what the numbers mean.

/// What stands where a number is not known.
pub const UNKNOWN: &str = "–";

/// Three significant digits and a decimal unit: `12.3 kB`.
pub fn bytes(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_string();
    }
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut scaled = value;
    let mut unit = 0;
    // 999.5 would be written as 1000 of the smaller unit.
    while scaled.abs() >= 999.5 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    format!("{} {}", three_digits(scaled), units[unit])
}

/// Three significant digits of the largest unit that fits, from microseconds to days.
pub fn seconds(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_string();
    }
    let (scaled, unit) = match value.abs() {
        0.0 => (0.0, "s"),
        v if v < 0.9995e-3 => (value * 1e6, "µs"),
        v if v < 0.9995 => (value * 1e3, "ms"),
        v if v < 119.5 => (value, "s"),
        v if v < 7170.0 => (value / 60.0, "min"),
        v if v < 172_080.0 => (value / 3600.0, "h"),
        _ => (value / 86_400.0, "days"),
    };
    format!("{} {unit}", three_digits(scaled))
}

/// Groups of three: `12,345`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A small or large number in two significant digits: `2.3e-4`, `0.12`, `1e-6`.
pub fn scientific(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_string();
    }
    if value == 0.0 {
        return "0".to_string();
    }
    if (0.01..999.5).contains(&value.abs()) {
        return trimmed(if value.abs() < 0.0995 { format!("{value:.3}") } else { three_digits_fixed(value) });
    }
    let text = format!("{value:.1e}");
    text.replacen(".0e", "e", 1)
}

/// Three significant digits: `0.314`, `9.84`, `1.25e-5`.
pub fn significant(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => UNKNOWN.to_string(),
        0.0 => "0".to_string(),
        v if (0.0995..1.0).contains(&v) => trimmed(format!("{value:.3}")),
        v if (0.00995..0.0995).contains(&v) => trimmed(format!("{value:.4}")),
        v if (1.0..999.5).contains(&v) => three_digits(value),
        v if (999.5..999_999.5).contains(&v) && value > 0.0 => count(value.round() as u64),
        _ => {
            let text = format!("{value:.2e}");
            let (digits, power) = text.split_once('e').expect("the format has an exponent");
            format!("{}e{power}", trimmed(digits.to_string()))
        }
    }
}

/// A ratio: `1.04`, `5.1`, `23`, `1,200`.
pub fn times(value: f64) -> String {
    match value {
        v if !v.is_finite() => UNKNOWN.to_string(),
        v if v < 1.095 => trimmed(format!("{v:.2}")),
        v if v < 9.95 => trimmed(format!("{v:.1}")),
        v if v < 1e15 => count(v.round() as u64),
        v => scientific(v),
    }
}

fn three_digits(value: f64) -> String {
    trimmed(three_digits_fixed(value))
}

fn three_digits_fixed(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Without the zeros that end a decimal fraction.
fn trimmed(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_decimal_units() {
        let cases =
            [(0.0, "0 B"), (512.0, "512 B"), (999.6, "1 kB"), (12_345.0, "12.3 kB"), (4.2e6, "4.2 MB"), (7e9, "7 GB")];
        for (value, text) in cases {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(bytes(f64::NAN), UNKNOWN);
    }

    #[test]
    fn times_take_the_largest_unit_that_fits() {
        let cases = [
            (0.0, "0 s"),
            (2e-5, "20 µs"),
            (0.0402, "40.2 ms"),
            (12.34, "12.3 s"),
            (600.0, "10 min"),
            (9000.0, "2.5 h"),
        ];
        for (value, text) in cases {
            assert_eq!(seconds(value), text);
        }
    }

    #[test]
    fn powers_of_ten_are_short() {
        let cases = [
            (1e-6, "1e-6"),
            (2.34e-4, "2.3e-4"),
            (0.12, "0.12"),
            (1.0, "1"),
            (0.013, "0.013"),
            (4.2e9, "4.2e9"),
            (0.0, "0"),
        ];
        for (value, text) in cases {
            assert_eq!(scientific(value), text);
        }
        assert_eq!(scientific(f64::INFINITY), UNKNOWN);
    }

    #[test]
    fn three_digits_are_kept() {
        let cases = [
            (0.3135, "0.314"),
            (0.014, "0.014"),
            (9.84, "9.84"),
            (1402.4, "1,402"),
            (1e-3, "1e-3"),
            (1.254e-5, "1.25e-5"),
            (-2.0, "-2"),
        ];
        for (value, text) in cases {
            assert_eq!(significant(value), text);
        }
        assert_eq!(significant(f64::NEG_INFINITY), UNKNOWN);
    }

    #[test]
    fn counts_and_ratios_are_grouped() {
        assert_eq!((count(7), count(1234), count(1_234_567)), ("7".into(), "1,234".into(), "1,234,567".into()));
        assert_eq!((times(1.04), times(5.13), times(23.4)), ("1.04".into(), "5.1".into(), "23".into()));
        assert_eq!((times(1.0), times(1234.0)), ("1".into(), "1,234".into()));
    }
}
