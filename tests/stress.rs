//! The property: whatever a writer does to a Kubernetes mount at full speed, each load has leaf and CA of
//! one generation. The key is the same in all, so that nothing but the read keeps them together.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "test code outside of test functions"
)]

mod common;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustls::pki_types::UnixTime;
use rustls_reload::issue::Ca;
use rustls_reload::{Bundle, Fingerprint, LoadError, Paths, ReadError};

#[test]
fn no_load_mixes_leaf_and_ca() {
    run(5_000);
}

#[test]
#[ignore = "a million loads take some minutes"]
fn no_load_of_a_million_mixes_leaf_and_ca() {
    run(1_000_000);
}

fn run(loads: u64) {
    let generations = Generations::new();
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("m");
    fs::create_dir(&mount).unwrap();
    generations.put(&mount, 0, None);
    for name in ["tls.crt", "tls.key", "ca.crt"] {
        symlink(format!("..data/{name}"), mount.join(name)).unwrap();
    }

    let stop = Arc::new(AtomicBool::new(false));
    let paths = Paths::secret(&mount).with_ca(mount.join("ca.crt"));
    let by_ca = generations.by_ca.clone();
    let writer = {
        let stop = Arc::clone(&stop);
        move || {
            let mut swaps = 0;
            while !stop.load(Ordering::Relaxed) {
                swaps += 1;
                generations.put(&mount, swaps, Some(swaps - 1));
            }
            swaps
        }
    };
    let writer = thread::Builder::new().name("swapper".into()).spawn(writer).unwrap();

    let provider = common::provider();
    let mut moved_on = 0;
    for _ in 0..loads {
        match Bundle::load(&paths, &provider, UnixTime::now()) {
            Ok(bundle) => {
                let leaf = u64::from_str_radix(bundle.leaf().serial(), 16).unwrap();
                let trust = bundle.trust().expect("no generation is without a CA");
                let ca = by_ca.get(trust.fingerprints().first().unwrap());
                assert_eq!(Some(&leaf), ca, "leaf and CA of two generations");
            }
            // A writer that is faster than the reader, eight times in a row.
            Err(LoadError::Read(ReadError::Unsettled { .. })) => moved_on += 1,
            Err(error) => panic!("{error}"),
        }
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = writer.join().expect("the writer comes to its end");
    println!("{loads} loads during {swaps} swaps: 0 mixed, 0 without CA, {moved_on} given up");
    assert!(swaps > 100, "the writer was at work: {swaps}");
    assert!(moved_on < loads / 2, "most loads succeed: {moved_on}");
}

/// What is rotated through: one key, and in each generation another leaf of another CA.
struct Generations {
    files: Vec<[(&'static str, String); 3]>,
    by_ca: HashMap<Fingerprint, u64>,
}

impl Generations {
    fn new() -> Self {
        let first = Ca::new("first").unwrap().server(&["localhost"]).issue().unwrap();
        let mut by_ca = HashMap::new();
        let make = |serial: u64| {
            let ca = Ca::builder("stress CA").serial(serial).build().unwrap();
            let leaf = ca.server(&["localhost"]).serial(serial).key(first.key()).issue().unwrap();
            by_ca.insert(Fingerprint::of(ca.cert_der()), serial);
            [
                ("tls.crt", leaf.chain_pem()),
                ("tls.key", leaf.key_pem().to_string()),
                ("ca.crt", ca.cert_pem().to_owned()),
            ]
        };
        let files = (1..=COUNT).map(make).collect();
        Self { files, by_ca }
    }

    /// As the kubelet does it, without waiting for the disk.
    fn put(&self, mount: &Path, number: usize, old: Option<usize>) {
        let name = |number: usize| format!("..g{number}");
        let dated = mount.join(name(number));
        fs::create_dir(&dated).unwrap();
        for (file, text) in &self.files[number % self.files.len()] {
            fs::write(dated.join(file), text).unwrap();
        }
        symlink(name(number), mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
        if let Some(old) = old {
            fs::remove_dir_all(mount.join(name(old))).unwrap();
        }
    }
}

const COUNT: u64 = 16;
