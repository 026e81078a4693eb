//! Numbers for people.

use std::time::Duration;

/// `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something: `1 node`, `2 nodes`.
pub fn things(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// `0 B`, `4.0 KiB`, `512 MiB`, `1.5 GiB`: three digits, or exact below 1 KiB.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1024.0;
    let mut unit = 0;
    // 1023.5 would print as 1024.
    while scaled >= 1023.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let unit = UNITS.get(unit).copied().unwrap_or_default();
    if scaled < 9.95 { format!("{scaled:.1} {unit}") } else { format!("{scaled:.0} {unit}") }
}

/// `0`, `4.2`, `87`, `1.2k`, `34k`, `5.6M`: at most four characters and a sign.
pub fn rate(value: f64) -> String {
    // Nothing less than zero, and no sum of nothing, which is -0.
    let value = value.max(0.0) + 0.0;
    for (limit, divisor, unit) in
        [(999.5, 1.0, ""), (999.5e3, 1e3, "k"), (999.5e6, 1e6, "M"), (f64::INFINITY, 1e9, "G")]
    {
        if value < limit {
            let scaled = value / divisor;
            let digits = usize::from(scaled < 9.95 && scaled > 0.0 && !(unit.is_empty() && scaled < 0.05));
            return format!("{scaled:.digits$}{unit}");
        }
    }
    "-".to_owned()
}

/// `93 %` as `93`, with one digit below ten: `4.2`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0 + 0.0;
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// `0.123 s`, `12.3 s`, `4:05`, `1:02:03`, `2d 3h`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{:.3} s", time.as_secs_f64()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        3600..86400 => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
        _ => format!("{}d {}h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// As [`duration`], from seconds.
pub fn seconds(value: f64) -> String {
    duration(Duration::try_from_secs_f64(value).unwrap_or_default())
}

/// As [`seconds`], without fractions: `7 s`, `4:05`.
pub fn whole_seconds(value: f64) -> String {
    if value < 60.0 { format!("{:.0} s", value.max(0.0).trunc()) } else { seconds(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn bytes_have_units() {
        let values = [0, 1023, 1024, 4096, 10 << 10, 1023 << 10, (1 << 20) - 1, 512 << 20, 3 << 29, u64::MAX];
        let texts =
            ["0 B", "1023 B", "1.0 KiB", "4.0 KiB", "10 KiB", "1023 KiB", "1.0 MiB", "512 MiB", "1.5 GiB", "16 EiB"];
        assert_eq!(values.map(bytes), texts);
    }

    #[test]
    fn rates_are_short() {
        let values = [0.0, 0.01, 0.5, 4.25, 87.0, 999.0, 999.9, 1234.0, 34_000.0, 5.6e6, 7e9, -1.0, -0.0];
        let texts = ["0", "0", "0.5", "4.2", "87", "999", "1.0k", "1.2k", "34k", "5.6M", "7.0G", "0", "0"];
        assert_eq!(values.map(rate), texts);
    }

    #[test]
    fn shares_are_percent() {
        assert_eq!([0.0, 0.042, 0.0996, 0.93, 1.0].map(percent), ["0", "4.2", "10", "93", "100"]);
        assert_eq!(percent(-0.0), "0");
    }

    #[test]
    fn times_have_the_right_size() {
        let values = [0.0, 0.1234, 12.34, 245.0, 3723.0, 183_600.0, f64::NAN];
        let texts = ["0.000 s", "0.123 s", "12.3 s", "4:05", "1:02:03", "2d 3h", "0.000 s"];
        assert_eq!(values.map(seconds), texts);
        assert_eq!([0.9, 59.99, 60.0].map(whole_seconds), ["0 s", "59 s", "1:00"]);
    }
}
