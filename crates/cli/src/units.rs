//! Numbers as people read them.

/// 76 B, 5.1 kB, 2.8 MB: decimal, two significant digits or three.
pub fn bytes(count: f64) -> String {
    scaled(count, &["B", "kB", "MB", "GB", "TB"], 1000.0)
}

/// 12 us, 3.4 ms, 5.6 s, 7 min.
pub fn seconds(seconds: f64) -> String {
    if seconds >= 7200.0 {
        format!("{:.1} h", seconds / 3600.0)
    } else if seconds >= 120.0 {
        format!("{:.1} min", seconds / 60.0)
    } else if seconds >= 1.0 || seconds == 0.0 {
        format!("{seconds:.1} s")
    } else {
        scaled(seconds * 1e9, &["ns", "us", "ms"], 1000.0)
    }
}

fn scaled(mut value: f64, units: &[&str], base: f64) -> String {
    let mut unit = 0;
    while value.abs() >= 0.9995 * base && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let digits = if value.abs() >= 99.95 || unit == 0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_and_times_are_short() {
        let cases = [(0.0, "0 B"), (76.4, "76 B"), (5_120.0, "5.1 kB"), (999_900.0, "1.0 MB"), (2.8e6, "2.8 MB")];
        cases.iter().for_each(|&(count, text)| assert_eq!(super::bytes(count), text));
        let cases = [(0.0034, "3.4 ms"), (5.6, "5.6 s"), (420.0, "7.0 min"), (2e-6, "2.0 us")];
        cases.iter().for_each(|&(count, text)| assert_eq!(super::seconds(count), text));
    }
}
