//! From the rename of `..data` to the first new handshake that shows the new certificate, over 200 swaps.
//!
//! Prints; fails nothing. A client shakes hands without pause, so the handshake that is under way at the swap
//! and the whole of the next one are part of the figure. The other figure is the reloader's alone: from the
//! rename to the callback after the new pointer was set.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark: prints, and stops where it cannot go on"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::tls::{Server, client_config, shake};
use common::{Mount, Pki};
use rustls_reload::Reloader;

fn main() {
    let pki = Pki::new();
    let pairs: Vec<_> = (1..=SWAPS + 1).map(|serial| pki.pair(serial)).collect();
    let mount = Mount::with(pairs.first().unwrap());
    let (swapped, swaps) = mpsc::channel();
    let reloader = Reloader::builder(mount.paths()).on_swap(move |_| swapped.send(Instant::now()).unwrap());
    let reloader = reloader.start().unwrap();
    let server = Server::start(&reloader);
    let client = client_config(pki.root().cert_der());

    let mut alone = Vec::new();
    for _ in 0..SWAPS {
        let begun = Instant::now();
        shake(server.address, &client).unwrap();
        alone.push(begun.elapsed());
    }
    print("one handshake, nothing else", alone);

    let (sender, first_seen) = mpsc::channel();
    // Shakes hands without pause, and tells when it first saw each certificate.
    let watch = move || {
        let mut last = 1;
        while last <= SWAPS {
            let serial = shake(server.address, &client).unwrap();
            if serial != last {
                last = serial;
                sender.send((serial, Instant::now())).unwrap();
            }
        }
    };
    let client = std::thread::Builder::new().spawn(watch).unwrap();

    let mut visible = Vec::new();
    let mut published = Vec::new();
    for (pair, next) in pairs.iter().zip(1..).skip(1) {
        // Away from the swap before, as renewals are.
        std::thread::park_timeout(Duration::from_millis(25));
        let renamed = mount.swap(pair);
        let (serial, seen) = first_seen.recv().unwrap();
        assert_eq!(serial, next);
        visible.push(seen.saturating_duration_since(renamed));
        published.push(swaps.recv().unwrap().saturating_duration_since(renamed));
    }
    client.join().unwrap();
    print("rename to published", published);
    print("rename to first new handshake", visible);
}

fn print(what: &str, mut samples: Vec<Duration>) {
    samples.sort();
    let at = |percent| samples.get((samples.len() - 1) * percent / 100).unwrap();
    println!("{what}: median {:.2?}, p90 {:.2?}, p99 {:.2?}, max {:.2?}", at(50), at(90), at(99), at(100));
}

const SWAPS: u64 = 200;
