//! Many rotations cost nothing that stays: descriptors, threads, watches and memory are as at the start.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "reads small files of the kernel, and prints what it found"
)]

mod common;

use std::fs;

use common::{Mount, Pki, SOON, eventually};
use rustls_reload::Reloader;

#[test]
fn a_thousand_rotations_leave_nothing() {
    soak(1_000);
}

#[test]
#[ignore = "ten thousand rotations take a minute or two"]
fn ten_thousand_rotations_leave_nothing() {
    soak(10_000);
}

fn soak(rotations: u64) {
    let pki = Pki::new();
    let pairs: Vec<_> = (1..=50).map(|serial| pki.pair(serial)).collect();
    let mount = Mount::with(pairs.last().unwrap());
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    let mut next = 1;
    let mut rotate = |count: u64| {
        for pair in pairs.iter().cycle().take(usize::try_from(count).unwrap()) {
            next += 1;
            mount.swap(pair);
            reloader.wait_for(next, SOON).expect("published");
        }
    };
    // The first hundred grow the heap to what a rotation needs.
    rotate(100);
    // What is watched is made right after what is published: the reload thread has come to its end by now.
    reloader.reload_now().unwrap();
    let before = Cost::now();
    rotate(rotations);
    eventually(SOON, "descriptors, threads and watches are as before", || {
        let now = Cost::now();
        (now.descriptors, now.threads, now.watches) == (before.descriptors, before.threads, before.watches)
    });
    let after = Cost::now();
    println!("after {rotations} rotations: {before:?} -> {after:?}");
    assert!(after.resident_kib < before.resident_kib + 4096, "memory is flat: {before:?} -> {after:?}");
    assert_eq!(reloader.stats().missed_events, 0);
}

/// What this process holds.
#[derive(Debug)]
struct Cost {
    descriptors: usize,
    threads: usize,
    watches: usize,
    resident_kib: u64,
}

impl Cost {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let infos = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
        let watches = |info: fs::DirEntry| {
            let text = fs::read_to_string(info.path()).unwrap_or_default();
            text.lines().filter(|line| line.starts_with("inotify wd:")).count()
        };
        Self {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: fs::read_dir("/proc/self/task").unwrap().count(),
            watches: infos.map(watches).sum(),
            resident_kib: resident.trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }
}
