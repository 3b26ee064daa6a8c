//! Certificates run out by the clock, not by events of the disk; and a clock may be wrong.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::as_conversions,
    reason = "test code outside of test functions"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Clock, Mount, Pair, Pki, SOON, eventually, serial, serves};
use rustls::time_provider::TimeProvider;
use rustls_reload::{Event, Health, Reloader};

#[test]
fn warnings_come_from_the_clock_alone_each_once() {
    let (clock, mount) = (Clock::at(DAY), Mount::with(&pair(1, 0, 90 * DAY)));
    let reloader = start(&mount, &clock);
    let events = reloader.subscribe();
    assert!(matches!(reloader.health(), Health::Ready));
    for (day, expected) in [(74, 0), (76, 1), (77, 1), (84, 2), (89, 3)] {
        clock.set(day * DAY + 3600);
        let said = || events.try_iter().filter(|event| matches!(event, Event::Expiring { .. })).count();
        let mut count = 0;
        if expected > 0 && day != 77 {
            eventually(SOON, &format!("day {day}"), || {
                count += said();
                count == 1
            });
        }
        // A reload goes through all that a resync does, and says nothing twice.
        reloader.reload_now().unwrap();
        assert_eq!(said(), 0, "day {day}");
    }
    assert!(matches!(reloader.health(), Health::ExpiringSoon { .. }), "{}", reloader.health());
    clock.set(91 * DAY);
    eventually(SOON, "expired", || events.try_iter().any(|event| matches!(event, Event::Expired { .. })));
    assert!(matches!(reloader.health(), Health::Expired { .. }), "{}", reloader.health());
    assert_eq!(serial(&reloader), 1, "served on, for want of a better one");
    mount.swap(&pair(2, 0, 365 * DAY));
    serves(&reloader, 2);
    assert!(matches!(reloader.health(), Health::Ready));
}

/// A device without a clock that survives boots starts in 1970: every certificate is of the future.
#[test]
fn boot_in_1970_serves_and_the_clock_that_comes_is_seen() {
    let (clock, mount) = (Clock::at(60), Mount::with(&pair(1, 20_000 * DAY, 20_090 * DAY)));
    let reloader = start(&mount, &clock);
    assert_eq!(serial(&reloader), 1);
    assert!(matches!(reloader.health(), Health::NotYetValid { .. }), "{}", reloader.health());
    mount.swap(&pair(2, 20_001 * DAY, 20_091 * DAY));
    serves(&reloader, 2);
    clock.set(20_010 * DAY);
    eventually(SOON, "ready", || matches!(reloader.health(), Health::Ready));
}

#[test]
fn candidate_of_the_future_waits_for_its_day() {
    let (clock, mount) = (Clock::at(10 * DAY), Mount::with(&pair(1, 0, 90 * DAY)));
    let reloader = start(&mount, &clock);
    mount.swap(&pair(2, 30 * DAY, 120 * DAY));
    eventually(SOON, "refused", || reloader.stats().failures == 1);
    assert_eq!(serial(&reloader), 1);
    clock.set(30 * DAY + 1);
    serves(&reloader, 2);
    assert_eq!(reloader.stats().recoveries, 1);
}

#[test]
fn invalid_candidate_replaces_one_that_has_expired() {
    let (clock, mount) = (Clock::at(10 * DAY), Mount::with(&pair(1, 0, 90 * DAY)));
    let reloader = start(&mount, &clock);
    mount.swap(&pair(2, 0, 5 * DAY));
    eventually(SOON, "refused while the live one is valid", || reloader.stats().failures == 1);
    clock.set(91 * DAY);
    // Both have expired: the newest on the disk.
    serves(&reloader, 2);
}

#[test]
fn end_of_time_is_survived() {
    let clock = Clock::at(u64::MAX / 4);
    let mount = Mount::with(&pair(1, 0, 253_402_300_799));
    let reloader = start(&mount, &clock);
    assert!(matches!(reloader.health(), Health::Expired { .. }));
    clock.set(0);
    eventually(SOON, "ready", || matches!(reloader.health(), Health::Ready));
}

fn start(mount: &Mount, clock: &Arc<Clock>) -> Reloader {
    let builder = Reloader::builder(mount.paths()).time_provider(Arc::clone(clock) as Arc<dyn TimeProvider>);
    builder.resync_interval(Duration::from_millis(50)).start().unwrap()
}

fn pair(serial: u64, not_before: u64, not_after: u64) -> Pair {
    let second = |time: u64| i64::try_from(time).unwrap();
    let pki = Pki::new();
    let leaf = pki.root().server(&["localhost"]).serial(serial);
    leaf.validity(second(not_before), second(not_after)).issue().expect("issued").into()
}

const DAY: u64 = 24 * 3600;
