//! When to warn that a certificate runs out: pure arithmetic over the wall clock.
//!
//! Said at a sixth of the lifetime left, at seven days, at one day, and at the end; each once for a
//! certificate, and only the most urgent of those that have passed. Thresholds over half of the lifetime are
//! left out, so that a certificate of a day is not warned about from its first hour. cert-manager and certbot
//! renew at a third: who is warned has missed a renewal.

use std::time::Duration;

use crate::bundle::Validity;

/// What is still to be said of one certificate.
#[derive(Clone, Debug)]
pub(crate) struct Expiry {
    /// When to warn, in seconds since 1970; the last is the last second of validity.
    thresholds: Vec<i64>,
    not_after: i64,
    said: usize,
}

/// What is to be said now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It runs out in so many seconds.
    Expiring {
        left: Duration,
    },
    Expired,
}

impl Expiry {
    pub(crate) fn of(validity: Validity) -> Self {
        let lifetime = i64::try_from(validity.lifetime()).unwrap_or(i64::MAX);
        let mut thresholds: Vec<i64> = [lifetime / 6, 7 * DAY, DAY]
            .into_iter()
            .filter(|left| *left <= lifetime / 2)
            .map(|left| validity.not_after.saturating_sub(left))
            .chain([validity.not_after])
            .collect();
        thresholds.sort_unstable();
        thresholds.dedup();
        Self { thresholds, not_after: validity.not_after, said: 0 }
    }

    /// What is to be said at `now`, if it was not said yet. A clock that goes back says nothing again.
    pub(crate) fn due(&mut self, now: i64) -> Option<Notice> {
        let passed = self.thresholds.iter().filter(|at| self.has_passed(**at, now)).count();
        if passed <= self.said {
            return None;
        }
        self.said = passed;
        let left = self.not_after.saturating_sub(now);
        Some(match u64::try_from(left) {
            Ok(left) => Notice::Expiring { left: Duration::from_secs(left) },
            Err(_) => Notice::Expired,
        })
    }

    /// How long until the next threshold, by a clock that does not jump.
    pub(crate) fn next(&self, now: i64) -> Option<Duration> {
        let next = self.thresholds.get(self.said)?;
        // The end has come one second after the last of validity.
        let wait = next.saturating_sub(now).saturating_add(1);
        Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)))
    }

    fn has_passed(&self, threshold: i64, now: i64) -> bool {
        if threshold == self.not_after { now > threshold } else { now >= threshold }
    }
}

const DAY: i64 = 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    fn of_days(days: i64) -> Expiry {
        Expiry::of(validity(0, days * DAY - 1))
    }

    fn validity(not_before: i64, not_after: i64) -> Validity {
        Validity { not_before, not_after }
    }

    #[test]
    fn each_threshold_is_said_once() {
        let mut expiry = of_days(90);
        assert_eq!(expiry.due(0), None);
        let mut said = Vec::new();
        for hour in 0..91 * 24 {
            if let Some(notice) = expiry.due(hour * 3600) {
                said.push((hour / 24, notice));
            }
        }
        let days: Vec<_> = said.iter().map(|(day, _)| *day).collect();
        assert_eq!(days, [75, 83, 89, 90], "a sixth of ninety days, seven days, a day, the end");
        assert_eq!(said.last().map(|(_, notice)| *notice), Some(Notice::Expired));
    }

    #[test]
    fn short_lives_have_no_early_thresholds() {
        assert_eq!(of_days(1).thresholds, [DAY - 1 - DAY / 6, DAY - 1]);
        assert_eq!(of_days(3).thresholds.len(), 3, "a sixth, a day, the end");
    }

    #[test]
    fn only_the_most_urgent_is_said_late() {
        let mut expiry = of_days(90);
        let late = 90 * DAY - 3600;
        assert!(
            matches!(expiry.due(late), Some(Notice::Expiring { left }) if left < Duration::from_secs(3600))
        );
        assert_eq!(expiry.due(late), None);
        assert_eq!(expiry.next(late), Some(Duration::from_secs(3600)));
    }

    /// 1970, the year 9999, and a certificate that ends before it begins: nothing over- or underflows.
    #[test]
    fn odd_dates_are_survived() {
        for (not_before, not_after) in
            [(i64::MIN, i64::MAX), (0, 253_402_300_799), (100, 50), (i64::MAX, i64::MIN)]
        {
            let mut expiry = Expiry::of(validity(not_before, not_after));
            for now in [i64::MIN, -1, 0, 1_800_000_000, i64::MAX] {
                expiry.due(now);
                expiry.next(now);
            }
        }
    }

    #[test]
    fn clock_that_goes_back_says_nothing_twice() {
        let mut expiry = of_days(90);
        assert!(expiry.due(76 * DAY).is_some());
        assert_eq!(expiry.due(0), None);
        assert_eq!(expiry.due(76 * DAY), None);
    }
}
