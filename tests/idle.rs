//! A reloader that has nothing to do costs nothing: no load, no publish, a wake-up a resync.

// The stand-in for kqueue also wakes for what others do in the directory above.
#![cfg(not(kqueue_shim))]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "reads small files of the kernel")]

mod common;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use common::{Mount, Pki};
use rustls_reload::Reloader;

#[test]
fn idle_for_one_resync_wakes_once() {
    let wakeups = idle(Duration::from_secs(15));
    assert!(wakeups <= 4, "{wakeups} wake-ups in 15 s");
}

#[test]
#[ignore = "takes a minute"]
fn idle_for_a_minute_wakes_less_than_ten_times() {
    let wakeups = idle(Duration::from_secs(60));
    println!("{wakeups} wake-ups in 60 s");
    assert!(wakeups < 10, "{wakeups} wake-ups in 60 s");
}

/// Leaves a reloader alone, but for somebody who reads the files; how often its threads woke.
fn idle(time: Duration) -> u64 {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    // Young files are read by content at the first resync; from then on identities are enough.
    thread::park_timeout(Duration::from_secs(13));
    let (before, wakeups) = (reloader.stats(), wakeups());
    let end = Instant::now() + time;
    while Instant::now() < end {
        fs::read(mount.path().join("tls.crt")).unwrap();
        fs::read(mount.path().join("tls.key")).unwrap();
        thread::park_timeout(Duration::from_millis(100));
    }
    assert_eq!(reloader.stats(), before, "nothing was loaded");
    assert_eq!(reloader.store().number(), 1);
    self::wakeups() - wakeups
}

/// How often the threads of the library gave up the processor, waiting.
fn wakeups() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).unwrap_or_default();
    tasks.map(status).filter(|status| status.starts_with("Name:\ttls-")).map(|status| switches(&status)).sum()
}

fn switches(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap()
}
