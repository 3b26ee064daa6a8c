//! Signals to the watcher thread, and the whole process stopped and continued: neither makes it deaf.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "test code outside of test functions"
)]

mod common;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::child::{self, Talking};
use common::{Files, Mount, Pki, SOON, eventually, serves};
use rustix::process::{Pid, Signal, kill_process};
use rustls_reload::{Health, Paths, Reloader};

/// `poll(2)` is interrupted by a handler whatever its flags say; a watcher took that for an error: F13.
#[test]
fn signals_to_the_watcher_thread_interrupt_nothing() {
    let caught = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&caught);
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGUSR1]).unwrap();
    let handle = signals.handle();
    let counting = move || {
        signals.forever().for_each(|_| {
            count.fetch_add(1, Ordering::SeqCst);
        })
    };
    let counter = thread::Builder::new().name("counter".into()).spawn(counting).unwrap();

    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    let watcher = thread_of_name("tls-watch");
    let before = switches(watcher);
    for next in 2..=6 {
        for round in 0..200 {
            let seen = caught.load(Ordering::SeqCst);
            // Taken by the thread of this number, unless it is blocked there.
            kill_process(Pid::from_raw(watcher).unwrap(), Signal::USR1).unwrap();
            if round % 20 == 0 {
                eventually(SOON, "the signal is seen", || caught.load(Ordering::SeqCst) > seen);
            }
        }
        mount.swap(&pki.pair(next));
        serves(&reloader, next);
    }
    assert!(switches(watcher) > before + 50, "it was that thread which was interrupted");
    assert!(matches!(reloader.health(), Health::Ready), "{}", reloader.health());
    let stats = reloader.stats();
    assert_eq!((stats.missed_events, stats.failures), (0, 0));
    handle.close();
    counter.join().unwrap();
}

#[test]
fn process_that_was_stopped_serves_what_came_meanwhile_and_after() {
    let test = "process_that_was_stopped_serves_what_came_meanwhile_and_after";
    if child::plays("stopped") {
        return serve();
    }
    let pki = Pki::new();
    let files = Files::with(&pki.pair(1));
    let mut command = child::command(&[], test, "stopped");
    command.env("STOPPED_DIR", files.dir.path());
    let mut server = Talking::spawn(command);
    server.hears(SOON, "serving 1");
    for _ in 0..5 {
        server.signal(Signal::STOP);
        server.signal(Signal::CONT);
    }
    files.rename_over(&pki.pair(2));
    server.hears(SOON, "serving 2");
    // The second file comes while nobody can look: B1.
    let third = pki.pair(3);
    common::rename_over(&files.key(), &third.key);
    server.signal(Signal::STOP);
    common::rename_over(&files.cert(), &third.chain);
    server.signal(Signal::CONT);
    server.hears(SOON, "serving 3");
    files.rename_over(&pki.pair(4));
    server.hears(SOON, "serving 4");
}

/// The inode number of a directory that is gone may come back at once, at the same path: it looked watched already.
#[test]
fn directory_with_the_inode_of_the_old_one_is_watched_again() {
    if child::plays("stopped") {
        return serve();
    }
    let pki = Pki::new();
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("d");
    let write = |serial| {
        let pair = pki.pair(serial);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("c.crt"), &pair.chain).unwrap();
        fs::write(dir.join("c.key"), &pair.key).unwrap();
    };
    write(1);
    let test = "directory_with_the_inode_of_the_old_one_is_watched_again";
    let mut command = child::command(&[], test, "stopped");
    command.env("STOPPED_DIR", &dir);
    let mut server = Talking::spawn(command);
    server.hears(SOON, "serving 1");
    for next in [2, 4, 6] {
        // Nobody looks between the old directory and the new one.
        server.signal(Signal::STOP);
        fs::remove_dir_all(&dir).unwrap();
        write(next);
        server.signal(Signal::CONT);
        server.hears(SOON, &format!("serving {next}"));
        let pair = pki.pair(next + 1);
        common::rename_over(&dir.join("c.key"), &pair.key);
        common::rename_over(&dir.join("c.crt"), &pair.chain);
        server.hears(SOON, &format!("serving {}", next + 1));
    }
}

/// The child: serves until it is killed.
fn serve() {
    let dir = PathBuf::from(env::var_os("STOPPED_DIR").unwrap());
    let paths = Paths::new(dir.join("c.crt"), dir.join("c.key"));
    let reloader = Reloader::builder(paths).on_swap(|swap| {
        println!("serving {}", swap.generation().bundle().leaf().serial().trim_start_matches('0'));
    });
    let reloader = reloader.start().unwrap();
    reloader.reload_now().unwrap();
    println!("serving 1");
    thread::park_timeout(Duration::from_secs(60));
    drop(reloader);
}

/// The number of a thread of this process.
fn thread_of_name(name: &str) -> i32 {
    let is_it = |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let find = || fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()).find(is_it);
    // A new thread takes its name a moment after it has begun.
    eventually(SOON, "the thread has its name", || find().is_some());
    find().unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// How often a thread gave up the processor of its own accord.
fn switches(thread: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}
