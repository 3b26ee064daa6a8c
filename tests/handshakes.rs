//! Clients that shake hands without pause while the files rotate: none fails, none sees two generations.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::tls::{Server, client_config, shake};
use common::{Mount, serves};
use rustls_reload::Reloader;
use rustls_reload::issue::Ca;

/// 200 swaps at 50 a second, each with an issuing CA of its own: a leaf of one generation with the chain of
/// another would not verify, and every client verifies.
#[test]
fn two_hundred_swaps_under_four_clients_fail_no_handshake() {
    let root = Ca::new("storm root").unwrap();
    let issue = |serial: u64| {
        let issuing = root.intermediate(&format!("issuing {serial}")).build().unwrap();
        common::Pair::from(issuing.server(&["localhost"]).serial(serial).issue().unwrap())
    };
    let mount = Mount::new();
    mount.swap_with_ca(&issue(1), root.cert_pem());
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    let pairs: Vec<_> = (2..=201).map(issue).collect();

    let server = Server::start(&reloader);
    let stop = Arc::new(AtomicBool::new(false));
    let shaken = Arc::new(AtomicU64::new(0));
    let client = client_config(root.cert_der());
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (stop, shaken, client, address) =
                (Arc::clone(&stop), Arc::clone(&shaken), Arc::clone(&client), server.address);
            thread::Builder::new().spawn(move || {
                let mut seen = BTreeSet::new();
                while !stop.load(Ordering::Relaxed) {
                    seen.insert(shake(address, &client).expect("no handshake fails"));
                    shaken.fetch_add(1, Ordering::Relaxed);
                }
                seen
            })
        })
        .map(Result::unwrap)
        .collect();

    let begun = Instant::now();
    for (index, pair) in (1u32..).zip(&pairs) {
        mount.swap_with_ca(pair, root.cert_pem());
        let next = begun + Duration::from_millis(20) * index;
        thread::park_timeout(next.saturating_duration_since(Instant::now()));
    }
    serves(&reloader, 201);
    assert_eq!(shake(server.address, &client).unwrap(), 201, "the last one is served");
    stop.store(true, Ordering::Relaxed);
    let seen: BTreeSet<u64> =
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
    let generations = reloader.store().number();
    assert!(generations > 100, "swaps are not skipped at this pace: {generations}");
    assert!(seen.len() > 50 && shaken.load(Ordering::Relaxed) > 200, "the clients were at work");
    assert_eq!(reloader.stats().missed_events, 0);
}
