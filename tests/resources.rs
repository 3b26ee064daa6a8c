//! What a process pays: threads and descriptors, counted exactly. One test a file: nothing runs beside it.

#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

mod common;

use std::ffi::OsStr;
use std::fs;

use common::{Mount, Pki, SOON, eventually, serves};
use rustls_reload::{Backend, Reloader, Watcher};

#[test]
fn starting_and_ending_leaves_nothing_and_many_cost_as_much_as_one() {
    let pki = Pki::new();
    a_thousand_starts_leave_nothing(&pki);
    fifty_share_two_threads_and_one_descriptor(&pki);
}

fn a_thousand_starts_leave_nothing(pki: &Pki) {
    let mount = Mount::with(&pki.pair(1));
    let before = (threads(), descriptors());
    for round in 0..1000 {
        let reloader = Reloader::builder(mount.paths()).start().unwrap();
        match round % 3 {
            0 => reloader.shutdown(),
            1 => drop(reloader),
            _ => {
                mount.swap(&pki.pair(round + 2));
                reloader.shutdown();
                reloader.shutdown();
            }
        }
        is_as(before, &format!("after {round} rounds"));
    }
}

fn fifty_share_two_threads_and_one_descriptor(pki: &Pki) {
    let mounts: Vec<_> = (1..=50).map(|serial| Mount::with(&pki.pair(serial))).collect();
    let before = (threads(), descriptors());
    let watcher = Watcher::start(Backend::Auto).unwrap();
    let start = |mount: &Mount| Reloader::builder(mount.paths()).watcher(&watcher).start().unwrap();
    let mut reloaders: Vec<_> = mounts.iter().map(start).collect();
    for (mount, reloader) in mounts.iter().zip(&reloaders) {
        mount.swap(&pki.pair(1000));
        serves(reloader, 1000);
    }
    // One inotify descriptor, and the two ends of the pipe that wakes its thread. With kqueue two queues, the
    // temporary directory, and of each mount the directory it lies in, itself, that of the day and two files.
    let cost = if cfg!(kqueue_shim) { 2 + 2 + 1 + 50 * 5 } else { 1 + 2 };
    eventually(SOON, "two threads and the descriptors of the backend", || {
        (threads(), descriptors()) == (before.0 + 2, before.1 + cost)
    });
    let last = reloaders.pop();
    drop(reloaders);
    let (mount, reloader) = (mounts.last().unwrap(), last.unwrap());
    mount.swap(&pki.pair(1001));
    serves(&reloader, 1001);
    drop((reloader, watcher));
    is_as(before, "at the end");
}

fn threads() -> usize {
    entries("/proc/self/task")
}

fn descriptors() -> usize {
    // What the stand-in for kqueue is made of does not count.
    let of_stand_in = |name: &OsStr| name == "anon_inode:inotify" || name == "anon_inode:[eventfd]";
    let names = fs::read_dir("/proc/self/fd").unwrap().map(|entry| fs::read_link(entry.unwrap().path()));
    // The one that lists them is there each time.
    names
        .filter(|name| !cfg!(kqueue_shim) || !name.as_ref().is_ok_and(|name| of_stand_in(name.as_os_str())))
        .count()
}

fn entries(dir: &str) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Who was joined is listed by the kernel for a moment more: it wakes the one who joins first.
fn is_as(before: (usize, usize), when: &str) {
    eventually(SOON, &format!("as before: {before:?}, {when}"), || (threads(), descriptors()) == before);
}
