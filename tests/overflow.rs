//! The queue of the kernel overflows while the process is stopped, and a rotation is among what is lost.

#![cfg(all(target_os = "linux", not(kqueue_shim)))]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "test code outside of test functions"
)]

mod common;

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::child::{self, Talking};
use common::log::Print;
use common::{Files, Pair, Pki, rename_over};
use log::LevelFilter;
use rustix::process::Signal;
use rustls_reload::{Backend, Paths, Reloader, Watcher};

#[test]
fn rotation_that_an_overflow_hides_is_served_at_once() {
    if child::plays(ROLE) {
        return serve();
    }
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &pki.pair(1));
    let mut command = child::command(&[], "rotation_that_an_overflow_hides_is_served_at_once", ROLE);
    command.env(DIR, dir.path());
    let mut server = Talking::spawn(command);
    server.hears(common::SOON, "serving 1");
    // Twice: what was lost the first time must not leave the watch deaf.
    for next in [2, 3] {
        server.signal(Signal::STOP);
        flood(dir.path());
        // The queue is full: nothing of this is in it.
        let pair = pki.pair(next);
        rename_over(&cert(dir.path()), &pair.chain);
        rename_over(&key(dir.path()), &pair.key);
        let begun = Instant::now();
        server.signal(Signal::CONT);
        let drained = server.hears(LIMIT, "overflowed") - begun;
        let took = server.hears(LIMIT, &format!("serving {next}")) - begun;
        eprintln!(
            "the queue was read to its end within {drained:.1?}, the rotation served within {took:.1?}"
        );
        assert!(took < LIMIT, "{took:?}");
        // The retry of a failed load would also find it, only later.
        assert!(!server.has_heard("keeps serving"), "no failure");
    }
}

/// The hand-over between the threads is full of touches of one identity when another one rotates.
#[test]
fn touches_that_find_no_room_are_made_up_for() {
    let pki = Pki::new();
    let third = pki.pair(3);
    let (noisy, other) = (Files::with(&pki.pair(1)), Files::with(&pki.pair(1)));
    let watcher = Watcher::start_with_room(Backend::Auto, 2).unwrap();
    let (entered, inside) = crossbeam_channel::bounded(1);
    let (release, released) = crossbeam_channel::bounded::<()>(0);
    let blocked = Reloader::builder(noisy.paths()).watcher(&watcher).on_swap(move |_| {
        entered.try_send(()).ok();
        released.recv_timeout(common::SOON).ok();
    });
    let blocked = blocked.start().unwrap();
    let reloader = Reloader::builder(other.paths()).watcher(&watcher).start().unwrap();
    reloader.reload_now().unwrap();
    noisy.rename_over(&pki.pair(2));
    inside.recv_timeout(common::SOON).unwrap();
    // The reload thread is in the callback now, and takes nothing.
    for _ in 0..200 {
        fs::write(noisy.key(), &third.key).unwrap();
    }
    other.rename_over(&pki.pair(2));
    // Time for the watcher thread to read all that; with less the test proves less, and still holds.
    std::thread::park_timeout(Duration::from_millis(300));
    drop(release);
    common::eventually(Duration::from_secs(1), "served", || common::serial(&reloader) == 2);
    assert_eq!(reloader.stats().missed_events, 0);
    drop(blocked);
}

/// The child: serves until it is killed.
fn serve() {
    common::log::keep(LevelFilter::Warn, Print::Stdout);
    let dir = PathBuf::from(env::var_os(DIR).unwrap());
    let paths = Paths::new(cert(&dir), key(&dir));
    let reloader = Reloader::builder(paths).on_swap(|swap| {
        println!("serving {}", swap.generation().bundle().leaf().serial().trim_start_matches('0'));
    });
    let reloader = reloader.start().unwrap();
    // Answered by the reload thread, after it has begun to watch.
    reloader.reload_now().unwrap();
    println!("serving 1");
    std::thread::park_timeout(Duration::from_secs(60));
    drop(reloader);
}

/// More changes of watched names than the queue holds, in turns, so that the kernel cannot merge them.
fn flood(dir: &Path) {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let events: usize = limit.trim().parse().unwrap();
    let (cert, key) = (cert(dir), key(dir));
    for _ in 0..events / 2 + 100 {
        for path in [&cert, &key] {
            // Nothing is truncated: some file systems flush what was, when it is closed.
            fs::File::options().write(true).open(path).unwrap().write_all(b"-").unwrap();
        }
    }
}

fn write(dir: &Path, pair: &Pair) {
    fs::write(cert(dir), &pair.chain).unwrap();
    fs::write(key(dir), &pair.key).unwrap();
}

fn cert(dir: &Path) -> PathBuf {
    dir.join("c.crt")
}

fn key(dir: &Path) -> PathBuf {
    dir.join("c.key")
}

const ROLE: &str = "flooded";
const DIR: &str = "OVERFLOW_DIR";

/// It takes some 60 ms, 50 of which are the quiet time. This much is for a machine that is busy otherwise.
const LIMIT: Duration = Duration::from_secs(2);
