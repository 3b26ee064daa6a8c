//! A program that starts a reloader and then forks: the child has the handles, but not the threads.

use std::fs;
use std::time::{Duration, Instant};

use rustls_reload::issue;
use rustls_reload::{Backend, Health, Paths, ReloadError, Reloader, Watcher};

/// The child sees what was loaded, is told that nothing will be reloaded, and ends without hanging.
#[test]
fn child_says_that_the_watcher_is_lost_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let pair = issue::self_signed(&["localhost"]).serial(1).issue().unwrap();
    let (cert, key) = (dir.path().join("c.crt"), dir.path().join("c.key"));
    fs::write(&cert, pair.chain_pem()).unwrap();
    fs::write(&key, pair.key_pem().as_bytes()).unwrap();
    // More than once: the moment at which the threads are caught differs.
    for _ in 0..50 {
        let watcher = Watcher::start(Backend::Auto).unwrap();
        let reloader = Reloader::builder(Paths::new(&cert, &key)).watcher(&watcher).start().unwrap();
        // SAFETY: the child only calls what is under test and then `_exit`. It does not unwind.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
        if child == 0 {
            let code = in_the_child(reloader, watcher);
            // SAFETY: ends the child at once, without the test harness's cleanup.
            unsafe { libc::_exit(code) };
        }
        assert_eq!(exit_code(child), 0, "see `in_the_child` for the number; 124 is a hang");
        assert!(matches!(reloader.health(), Health::Ready), "the parent is not touched");
        reloader.shutdown();
    }
}

fn in_the_child(reloader: Reloader, watcher: Watcher) -> i32 {
    if !matches!(reloader.health(), Health::WatcherLost) {
        return 1;
    }
    if reloader.current().is_none_or(|generation| generation.number() != 1) {
        return 2;
    }
    if !matches!(reloader.reload_now(), Err(ReloadError::Stopped)) {
        return 3;
    }
    reloader.shutdown();
    drop(reloader);
    drop(watcher);
    0
}

/// Waits for the child, for 10 s at most.
fn exit_code(child: libc::pid_t) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place, and `child` is ours.
        let waited = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if waited == child {
            return if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 125 };
        }
        if Instant::now() > deadline {
            // SAFETY: our own child, which hangs.
            unsafe { libc::kill(child, libc::SIGKILL) };
            return 124;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
