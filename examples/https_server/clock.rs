//! Unix seconds as people and HTTP read them.

use std::time::SystemTime;

/// `2026-11-30T11:08:53Z` (RFC 3339).
pub(crate) fn rfc3339(at: i64) -> String {
    let (year, month, day) = date(at);
    let (hour, minute, second) = time(at);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `Mon, 30 Nov 2026 11:08:53 GMT` (RFC 9110 §5.6.7).
pub(crate) fn http_date(at: i64) -> String {
    let (year, month, day) = date(at);
    let (hour, minute, second) = time(at);
    // 1970-01-01 was a Thursday.
    let weekday = nth("Thu Fri Sat Sun Mon Tue Wed", at.div_euclid(86_400).rem_euclid(7));
    let month = nth("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", month - 1);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Now, in Unix seconds.
pub(crate) fn now() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "for the eyes of people; nothing is decided by it")]
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Days to a date in years that begin in March: <https://howardhinnant.github.io/date_algorithms.html>
fn date(at: i64) -> (i64, i64, i64) {
    let z = at.div_euclid(86_400) + 719_468;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (era * 400 + yoe + i64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

fn time(at: i64) -> (i64, i64, i64) {
    let second = at.rem_euclid(86_400);
    (second / 3_600, second / 60 % 60, second % 60)
}

fn nth(words: &str, n: i64) -> &str {
    usize::try_from(n).ok().and_then(|n| words.split(' ').nth(n)).unwrap_or_default()
}
