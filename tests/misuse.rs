//! What a program may do wrong, or what others may do to it, without hurting the rest.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::tls::{Server, client_config, shake};
use common::{Files, Mount, Pki, SOON, eventually, serves};
use rustls::server::ResolvesServerCert;
use rustls_reload::{Backend, ClientAuth, Event, Health, Reloader, Watcher};

/// A file that never rested kept the reload thread at draining events: other identities, commands and the
/// ceiling had to wait for as long as the writer went on.
#[test]
fn file_that_never_rests_does_not_starve_others() {
    let pki = Pki::new();
    let (busy, calm) = (Files::with(&pki.pair(1)), Mount::with(&pki.pair(1)));
    let response = busy.dir.path().join("x.ocsp");
    let watcher = Watcher::start(Backend::Auto).unwrap();
    let start = || Reloader::builder(busy.paths().with_ocsp(&response)).watcher(&watcher).start().unwrap();
    let many: Vec<_> = (0..40).map(|_| start()).collect();
    let reloader = Reloader::builder(calm.paths()).watcher(&watcher).start().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let write = {
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Relaxed) {
                symlink("nowhere", &response).unwrap();
                fs::remove_file(&response).unwrap();
                thread::park_timeout(Duration::from_micros(200));
            }
        }
    };
    let writer = thread::Builder::new().spawn(write).unwrap();
    for next in 2..=4 {
        calm.swap(&pki.pair(next));
        serves(&reloader, next);
    }
    reloader.reload_now().expect("answered");
    stop.store(true, Ordering::Relaxed);
    writer.join().expect("the writer comes to its end");
    drop(many);
}

/// A hook that panicked ended the reload thread, and with it every identity of the watcher, without a word.
#[test]
fn hook_that_panics_is_a_failure_of_its_identity_alone() {
    let pki = Pki::new();
    let (one, two) = (Mount::with(&pki.pair(1)), Mount::with(&pki.pair(1)));
    let watcher = Watcher::start(Backend::Auto).unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let hurt = Reloader::builder(one.paths()).watcher(&watcher).adjust_server(move |_| {
        // The config that refuses, the first generation, then the one that panics.
        assert!(
            counted.fetch_add(1, Ordering::SeqCst) < 2 || counted.load(Ordering::SeqCst) > 12,
            "on purpose"
        );
    });
    let hurt = hurt.start().unwrap();
    let well = Reloader::builder(two.paths()).watcher(&watcher).start().unwrap();
    let events = hurt.subscribe();
    one.swap(&pki.pair(2));
    eventually(SOON, "told", || events.try_iter().any(|event| matches!(event, Event::Failed(_))));
    assert!(matches!(hurt.health(), Health::Stale { .. }), "{}", hurt.health());
    two.swap(&pki.pair(2));
    serves(&well, 2);
    eventually(SOON * 4, "the hook is tried again, and works at last", || hurt.store().number() == 2);
}

/// A hook that brings a resolver of its own let clients in while there was no certificate, and unverified.
#[test]
fn config_that_refuses_refuses_whatever_the_hook_does() {
    let pki = Pki::new();
    let fallback = Mount::with(&pki.pair(9));
    let other = Reloader::builder(fallback.paths()).start().unwrap();
    let absent = Mount::new();
    let reloader = Reloader::builder(absent.paths())
        .client_auth(ClientAuth::Required)
        .allow_absent()
        .adjust_server(move |config| {
            let fallback: Arc<dyn ResolvesServerCert> = other.resolver();
            config.cert_resolver = fallback;
        })
        .start()
        .unwrap();
    let server = Server::start(&reloader);
    shake(server.address, &client_config(pki.root().cert_der())).expect_err("nobody gets in");
    assert!(matches!(reloader.health(), Health::Absent { .. }));
}

/// The second of two shutdowns returned at once, while a callback still ran.
#[test]
fn every_shutdown_waits_for_the_callback() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let (inside, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (entered, left) = (Arc::clone(&inside), Arc::clone(&over));
    let reloader = Reloader::builder(mount.paths()).on_swap(move |_| {
        entered.store(true, Ordering::SeqCst);
        let end = std::time::Instant::now() + Duration::from_millis(400);
        while let Some(left) = end.checked_duration_since(std::time::Instant::now()) {
            thread::park_timeout(left);
        }
        left.store(true, Ordering::SeqCst);
    });
    let reloader = reloader.start().unwrap();
    mount.swap(&pki.pair(2));
    eventually(SOON, "the callback runs", || inside.load(Ordering::SeqCst));
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let (reloader, over) = (reloader.clone(), Arc::clone(&over));
            thread::Builder::new().spawn(move || {
                reloader.shutdown();
                over.load(Ordering::SeqCst)
            })
        })
        .map(Result::unwrap)
        .collect();
    for end in ends {
        assert!(end.join().expect("no panic"), "returned while the callback ran");
    }
}

#[test]
fn subscribers_find_their_channel_at_its_end_after_shutdown() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    let events = reloader.subscribe();
    reloader.shutdown();
    assert_eq!(events.iter().count(), 0, "this would hang");
}
