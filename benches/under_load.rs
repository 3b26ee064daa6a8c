//! What ten rotations a second cost a busy server: requests a second on connections that live, and handshakes
//! a second, by `wrk` against `examples/https_server`, with and without rotations in turn.
//!
//! Prints; fails nothing. Build the example first: `cargo build --release --example https_server`. The
//! argument is the number of pairs of runs (default 5).

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark: prints, and stops where it cannot go on"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Pki;

fn main() {
    let pairs = env::args().find_map(|arg| arg.parse().ok()).unwrap_or(5);
    let dir = tempfile::tempdir().unwrap();
    let secret = Secret::new(dir.path());
    let (mut server, url) = start(dir.path());
    for (what, header) in [("requests", "X-Keep: alive"), ("handshakes", "Connection: close")] {
        let mut ratios = Vec::new();
        for pair in 0..pairs {
            // In turn, so that what drifts drifts for both.
            let first_rotates = pair % 2 == 1;
            let one = wrk(&url, header, first_rotates.then_some(&secret));
            let other = wrk(&url, header, (!first_rotates).then_some(&secret));
            let (still, rotating) = if first_rotates { (other, one) } else { (one, other) };
            println!(
                "{what}/s: {still:9.1} still, {rotating:9.1} with 10 rotations/s: {:.3}",
                rotating / still
            );
            ratios.push(rotating / still);
        }
        ratios.sort_by(f64::total_cmp);
        let median = ratios.get(ratios.len() / 2).unwrap();
        println!("{what}/s: median of the ratios {median:.3}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A mount with twenty generations beside each other: to rotate costs the writer one link.
struct Secret<'a> {
    dir: &'a Path,
}

const GENERATIONS: u64 = 20;

impl<'a> Secret<'a> {
    fn new(dir: &'a Path) -> Self {
        let pki = Pki::new();
        for serial in 0..GENERATIONS {
            let (pair, place) = (pki.pair(serial + 1), dir.join(format!("..{serial}")));
            fs::create_dir(&place).unwrap();
            fs::write(place.join("tls.crt"), pair.chain).unwrap();
            fs::write(place.join("tls.key"), pair.key).unwrap();
        }
        let secret = Self { dir };
        secret.swap(0);
        for file in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(file), dir.join(file)).unwrap();
        }
        secret
    }

    fn swap(&self, serial: u64) {
        let next = self.dir.join("..data_tmp");
        symlink(format!("..{}", serial % GENERATIONS), &next).unwrap();
        fs::rename(next, self.dir.join("..data")).unwrap();
    }
}

/// The server, and where it is.
fn start(secret: &Path) -> (Child, String) {
    let program = env::current_exe().unwrap();
    let program = program.parent().unwrap().parent().unwrap().join("examples/https_server");
    let mut command = Command::new(program);
    command.arg("--secret").arg(secret).args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    let mut server = command.env("RUST_LOG", "info").spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let url = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some((_, address)) = line.split_once("serving on ") {
            break format!("{address}/");
        }
    };
    // What it says later has to go somewhere.
    std::thread::Builder::new().spawn(move || lines.for_each(drop)).unwrap();
    (server, url)
}

/// What `wrk` counts in a second.
fn wrk(url: &str, header: &str, rotate: Option<&Secret<'_>>) -> f64 {
    let mut command = Command::new("wrk");
    command.args(["-t", "1", "-c", "16", "-d", "4", "-H", header, url]).stdout(Stdio::piped());
    let mut wrk = command.spawn().unwrap();
    let mut next = Instant::now();
    let mut serial = 0;
    while wrk.try_wait().unwrap().is_none() {
        next += Duration::from_millis(100);
        std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        serial += 1;
        if let Some(secret) = rotate {
            secret.swap(serial);
        }
    }
    let said = std::io::read_to_string(wrk.stdout.take().unwrap()).unwrap();
    assert!(!said.contains("Socket errors"), "{said}");
    let rate = said.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    rate.unwrap().trim().parse().unwrap()
}
