//! A reloader on real files: each way of putting new ones in place is served, and bad ones never are.

mod common;

use std::fs;

use common::{Files, Mount, Pki, SOON, eventually, rename_over, serial, serves};
use rustls_reload::{Backend, Health, Reloaded, Reloader};

#[test]
fn every_kubernetes_swap_is_served() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    for next in 2..=6 {
        mount.swap(&pki.pair(next));
        let generation = reloader.wait_for(next, SOON).expect("published");
        assert_eq!((generation.number(), serial(&reloader)), (next, next));
    }
    assert_eq!(reloader.stats().missed_events, 0);
}

#[test]
fn rename_over_is_served_again_and_again() {
    let pki = Pki::new();
    let files = Files::with(&pki.pair(1));
    let reloader = Reloader::builder(files.paths()).start().unwrap();
    for next in 2..=4 {
        files.rename_over(&pki.pair(next));
        serves(&reloader, next);
    }
}

#[test]
fn in_place_rewrite_is_served_in_either_order() {
    let pki = Pki::new();
    let files = Files::with(&pki.pair(1));
    let reloader = Reloader::builder(files.paths()).start().unwrap();
    let second = pki.pair(2);
    fs::write(files.key(), &second.key).unwrap();
    fs::write(files.cert(), &second.chain).unwrap();
    serves(&reloader, 2);
    let third = pki.pair(3);
    fs::write(files.cert(), &third.chain).unwrap();
    fs::write(files.key(), &third.key).unwrap();
    serves(&reloader, 3);
    let fourth = pki.pair(4);
    fs::write(files.key(), &fourth.key).unwrap();
    fs::write(files.cert(), &fourth.chain).unwrap();
    serves(&reloader, 4);
    assert_eq!(reloader.stats().failures, 0, "half of a rotation is no failure");
}

#[test]
fn directory_that_is_removed_and_made_again_is_served() {
    let pki = Pki::new();
    let parent = tempfile::tempdir().unwrap();
    let tls = parent.path().join("tls");
    let fill = |serial| {
        let pair = pki.pair(serial);
        fs::create_dir(&tls).unwrap();
        fs::write(tls.join("c.crt"), &pair.chain).unwrap();
        fs::write(tls.join("c.key"), &pair.key).unwrap();
    };
    fill(1);
    let paths = rustls_reload::Paths::new(tls.join("c.crt"), tls.join("c.key"));
    let reloader = Reloader::builder(paths).start().unwrap();
    for next in 2..=4 {
        let gone = reloader.stats().failures + 1;
        fs::remove_dir_all(&tls).unwrap();
        eventually(SOON, "that it is gone is counted", || reloader.stats().failures == gone);
        fill(next);
        serves(&reloader, next);
    }
}

#[test]
fn directory_that_is_moved_away_and_replaced_is_served() {
    let pki = Pki::new();
    let parent = tempfile::tempdir().unwrap();
    let tls = parent.path().join("tls");
    let fill = |dir: &std::path::Path, serial| {
        let pair = pki.pair(serial);
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("c.crt"), &pair.chain).unwrap();
        fs::write(dir.join("c.key"), &pair.key).unwrap();
    };
    fill(&tls, 1);
    let paths = rustls_reload::Paths::new(tls.join("c.crt"), tls.join("c.key"));
    let reloader = Reloader::builder(paths).start().unwrap();
    for next in 2..=4 {
        let new = parent.path().join("new");
        fill(&new, next);
        fs::rename(&tls, parent.path().join(format!("old{next}"))).unwrap();
        fs::rename(&new, &tls).unwrap();
        serves(&reloader, next);
    }
}

#[test]
fn polling_serves_every_layout_too() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let files = Files::with(&pki.pair(1));
    let builder = |paths| {
        let builder = Reloader::builder(paths).backend(Backend::Poll);
        builder.poll_interval(std::time::Duration::from_millis(50))
    };
    let mounted = builder(mount.paths()).start().unwrap();
    let plain = builder(files.paths()).start().unwrap();
    for next in 2..=4 {
        mount.swap(&pki.pair(next));
        files.rename_over(&pki.pair(next));
        serves(&mounted, next);
        serves(&plain, next);
    }
}

#[test]
fn torn_pair_keeps_previous_bundle_until_it_is_whole() {
    let pki = Pki::new();
    let files = Files::with(&pki.pair(1));
    let reloader = Reloader::builder(files.paths()).start().unwrap();
    let second = pki.pair(2);
    rename_over(&files.key(), &second.key);
    eventually(SOON, "the mismatch is counted", || reloader.stats().failures == 1);
    let health = reloader.health();
    assert!(matches!(health, Health::Stale { .. }), "{health}");
    assert_eq!(serial(&reloader), 1);
    rename_over(&files.cert(), &second.chain);
    serves(&reloader, 2);
    assert_eq!(reloader.stats().recoveries, 1);
    assert!(matches!(reloader.health(), Health::Ready));
}

#[test]
fn restored_bytes_are_a_recovery_but_no_new_generation() {
    let pki = Pki::new();
    let first = pki.pair(1);
    let files = Files::with(&first);
    let reloader = Reloader::builder(files.paths()).start().unwrap();
    rename_over(&files.key(), &pki.pair(2).key);
    eventually(SOON, "the mismatch is counted", || reloader.stats().failures == 1);
    rename_over(&files.key(), &first.key);
    eventually(SOON, "recovered", || reloader.stats().recoveries == 1);
    assert_eq!(reloader.store().number(), 1);
}

#[test]
fn renewal_with_the_same_key_is_a_new_generation() {
    let pki = Pki::new();
    let root = pki.root();
    let first = root.server(&["localhost"]).serial(1).issue().unwrap();
    let second = pki.renewal(2, first.key());
    let files = Files::with(&first.into());
    let reloader = Reloader::builder(files.paths()).start().unwrap();
    rename_over(&files.cert(), &second.chain);
    serves(&reloader, 2);
}

#[test]
fn expired_candidate_does_not_replace_valid() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    mount.swap(&pki.expired(2));
    eventually(SOON, "the refusal is counted", || reloader.stats().failures == 1);
    assert_eq!(serial(&reloader), 1);
    mount.swap(&pki.pair(3));
    serves(&reloader, 3);
}

#[test]
fn metadata_changes_publish_nothing() {
    let pki = Pki::new();
    let first = pki.pair(1);
    let files = Files::with(&first);
    let reloader = Reloader::builder(files.paths()).start().unwrap();
    let times = fs::File::options().write(true).open(files.cert()).unwrap();
    times.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    drop(times);
    rename_over(&files.cert(), &first.chain);
    assert_eq!(reloader.reload_now().unwrap(), Reloaded::Unchanged);
    assert_eq!((reloader.store().number(), reloader.stats().swaps), (1, 1));
}

#[test]
fn files_that_come_after_the_start_are_served() {
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("not/there/yet");
    let paths = rustls_reload::Paths::new(deep.join("c.crt"), deep.join("c.key"));
    let reloader = Reloader::builder(paths).allow_absent().start().unwrap();
    assert!(matches!(reloader.health(), Health::Absent { .. }));
    fs::create_dir_all(&deep).unwrap();
    let pair = pki.pair(1);
    fs::write(deep.join("c.crt"), &pair.chain).unwrap();
    fs::write(deep.join("c.key"), &pair.key).unwrap();
    reloader.wait_for(1, SOON).expect("published");
    eventually(SOON, "ready", || matches!(reloader.health(), Health::Ready));
}
