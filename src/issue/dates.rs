//! Unix seconds for rcgen, whose `time` types stay out of our manifest and our public face.

use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime};

use super::IssueError;

/// Seconds of an hour.
pub(super) const HOUR: i64 = 3_600;
/// Seconds of a day.
pub(super) const DAY: i64 = 24 * HOUR;
/// 1950-01-01, where `UTCTime` begins (RFC 5280 §4.1.2.5.1).
const EARLIEST: i64 = -631_152_000;
/// 9999-12-31T23:59:59, "no well-defined expiration" (RFC 5280 §4.1.2.5).
const LATEST: i64 = 253_402_300_799;

/// A stretch of time as the caller gave it; what is missing is filled in when the thing is issued.
#[derive(Clone, Copy, Debug)]
pub(super) enum Period {
    /// Not-before and not-after.
    Fixed(i64, i64),
    /// Seconds before and after the instant of issue.
    Around(i64, i64),
}

impl Period {
    /// The two instants, checked.
    pub(super) fn bounds(self) -> Result<(i64, i64), IssueError> {
        let (from, to) = match self {
            Self::Fixed(from, to) => (from, to),
            Self::Around(before, after) => {
                let now = now();
                (now.saturating_sub(before), now.saturating_add(after))
            }
        };
        let range = EARLIEST..=LATEST;
        if from < to && range.contains(&from) && range.contains(&to) {
            Ok((from, to))
        } else {
            Err(IssueError::Period { from, to })
        }
    }

    /// The same start, and an end `duration` after the instant of issue.
    pub(super) fn lasting(self, duration: Duration) -> Self {
        let after = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        match self {
            Self::Around(before, _) => Self::Around(before, after),
            Self::Fixed(from, _) => Self::Fixed(from, now().saturating_add(after)),
        }
    }
}

/// `seconds` from `epoch`, where both are known to be in range.
pub(super) fn moved<T>(epoch: T, seconds: i64) -> T
where
    T: Add<Duration, Output = T> + Sub<Duration, Output = T>,
{
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { epoch - distance } else { epoch + distance }
}

/// `date!(seconds)`: rcgen's date, whose type has no name here.
macro_rules! date {
    ($seconds:expr) => {
        $crate::issue::dates::moved(rcgen::date_time_ymd(1970, 1, 1), $seconds)
    };
}
pub(super) use date;

fn now() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the default of a caller who gave no instants; tests give them"
    )]
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(LATEST)
}
