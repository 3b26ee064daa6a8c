//! The limits of inotify are reached: starting works, polling takes over, and one line says which limit it was.
//!
//! The limits are lowered in a user namespace of a child; those of the machine stay as they are. Where user
//! namespaces are not permitted, the tests say so and check nothing.

#![cfg(all(target_os = "linux", not(kqueue_shim)))]
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "test code outside of test functions")]

mod common;

use std::process::Command;
use std::time::Duration;

use common::log::Print;
use common::{Files, Mount, Pki, SOON, child, eventually, serves};
use inotify::Inotify;
use log::LevelFilter;
use rustls_reload::{Backend, Event, Health, Reloader, ReloaderBuilder, Watcher};

#[test]
fn instances_used_up_by_others_lead_to_polling() {
    // Few, as those of the child count for its user on the whole machine as well.
    limited("instances_used_up_by_others_lead_to_polling", "max_inotify_instances", 8, || {
        let others = use_up();
        assert_eq!(others.len(), 8);
        rotate_degraded("max_user_instances");
    });
}

#[test]
fn watches_used_up_lead_to_polling() {
    // Enough for the upper directories, not for those of the mount.
    limited("watches_used_up_lead_to_polling", "max_inotify_watches", 2, || {
        rotate_degraded("max_user_watches");
    });
}

#[test]
fn no_watch_at_all_leads_to_polling() {
    limited("no_watch_at_all_leads_to_polling", "max_inotify_watches", 0, || {
        rotate_degraded("max_user_watches");
    });
}

#[test]

fn events_come_back_when_instances_are_freed() {
    limited("events_come_back_when_instances_are_freed", "max_inotify_instances", 4, || {
        let others = use_up();
        let pki = Pki::new();
        let mount = Mount::with(&pki.pair(1));
        let reloader = polled(&mount).start().unwrap();
        let events = reloader.subscribe();
        eventually(SOON, "polled", || matches!(reloader.health(), Health::WatchDegraded { .. }));
        drop(others);
        eventually(RETRIED, "by events again", || matches!(reloader.health(), Health::Ready));
        let restored = || events.try_iter().any(|event| matches!(event, Event::WatchRestored));
        eventually(SOON, "said so", restored);
        for next in 2..=4 {
            mount.swap(&pki.pair(next));
            serves(&reloader, next);
        }
        assert_eq!(reloader.stats().missed_events, 0);
    });
}

/// Starts, rotates three times and comes to an end although the kernel's events cannot be had.
fn rotate_degraded(limit: &str) {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let watcher = Watcher::start(Backend::Auto).unwrap();
    let reloader = polled(&mount).watcher(&watcher).start().unwrap();
    let degraded = || matches!(reloader.health(), Health::WatchDegraded { .. });
    eventually(SOON, "health says so", degraded);
    assert!(reloader.health().to_string().contains(limit), "{}", reloader.health());
    for next in 2..=4 {
        mount.swap(&pki.pair(next));
        serves(&reloader, next);
    }
    // Files that do not move as one settle. Each try to get events after all pushed that, up to the ceiling.
    let files = Files::with(&pki.pair(1));
    let plain = Reloader::builder(files.paths()).watcher(&watcher).poll_interval(POLL).start().unwrap();
    for next in 2..=3 {
        files.rename_over(&pki.pair(next));
        eventually(Duration::from_millis(700), "settled", || common::serial(&plain) == next);
    }
    assert!(degraded(), "{}", reloader.health());
    assert_eq!(common::log::warnings(limit).len(), 1, "{:?}", common::log::warnings(""));
    assert_eq!(reloader.stats().missed_events, 0, "no event was promised");
}

fn polled(mount: &Mount) -> ReloaderBuilder {
    Reloader::builder(mount.paths()).poll_interval(POLL)
}

/// Opens inotify instances until there are no more.
fn use_up() -> Vec<Inotify> {
    std::iter::from_fn(|| Inotify::init().ok()).take(1000).collect()
}

/// Runs `body` in a child in which the limit of this name is `value`.
fn limited(test: &str, limit: &str, value: u32, body: impl FnOnce()) {
    if child::plays(limit) {
        common::log::keep(LevelFilter::Warn, Print::Nowhere);
        return body();
    }
    let may = Command::new("unshare").args(["--user", "--map-root-user", "true"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        eprintln!("{test}: skipped, user namespaces are not permitted");
        return;
    }
    let script = format!("echo {value} > /proc/sys/user/{limit} && exec \"$@\"");
    let around = ["unshare", "--user", "--map-root-user", "sh", "-c", &script, "sh"];
    let mut command = child::command(&around, test, limit);
    let output = command.arg("--include-ignored").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "it ran: {said}");
}

/// How often files are polled meanwhile.
const POLL: Duration = Duration::from_millis(50);

/// inotify is tried again from time to time.
const RETRIED: Duration = Duration::from_secs(30);
