//! The demonstration: a CA of its own, a Secret mount in a temporary directory, a rotation every 3 s.

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use log::LevelFilter;
use rustls_reload::issue::{Ca, Issued};
use rustls_reload::publish::SecretDir;
use rustls_reload::{Paths, Reloader};
use signal_hook::iterator::{Handle, Signals};

use crate::args::Options;
use crate::probe::Probe;
use crate::service::{self, Service, failed};
use crate::stop::{Stop, Woken};
use crate::{clock, logger};

/// From one rotation to the next.
const PERIOD: Duration = Duration::from_secs(3);
/// Of the first certificate; each later one lives a minute longer, so that not-after tells them apart.
const LIFETIME: Duration = Duration::from_secs(24 * 3_600);

pub(crate) fn run(options: &Options, rotations: Option<u32>) -> Result<ExitCode, Box<dyn Error>> {
    // The lines of the demonstration say what the log would.
    logger::start(LevelFilter::Warn);
    let mut signals = Signals::new(service::SIGNALS)?;
    let home = tempfile::Builder::new().prefix("https_server-").tempdir()?;
    let mount = home.path().join("tls");
    let issuer = Issuer { ca: Ca::new("rustls-reload demonstration CA")?, secret: SecretDir::open(&mount)? };
    issuer.publish(&issuer.issue(0)?)?;

    let service = Service::start(Paths::secret(&mount), options)?;
    let config = service.reloader.server_config();
    let provider = Arc::clone(config.crypto_provider());
    let probe = Arc::new(Probe::new(service.addr, issuer.ca.cert_der(), provider)?);
    introduce(&mount, &service, rotations);

    // Not the stop of the service: the client must not see the server end in the middle of a rotation.
    let stop = Arc::new(Stop::new()?);
    let rotation = Rotation {
        issuer,
        probe,
        reloader: Arc::clone(&service.reloader),
        stop: Arc::clone(&stop),
        limit: rotations,
    };
    let rotating = rotation.start(signals.handle())?;
    service.obey(&mut signals);
    stop.set();
    let outcome = rotating.join();
    service.end();
    let tally = outcome.map_err(|_| failed("the rotating thread had panicked"))??;
    say(&tally.summary());
    Ok(if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Who writes the files. In real life another process: the kubelet, certbot, an agent.
struct Issuer {
    ca: Ca,
    secret: SecretDir,
}

impl Issuer {
    fn issue(&self, nth: u32) -> Result<Issued, Box<dyn Error>> {
        let longer = Duration::from_secs(60) * nth;
        let leaf = self.ca.server(&["localhost", "127.0.0.1", "::1"]);
        Ok(leaf.valid_for(LIFETIME + longer).issue()?)
    }

    /// When the rename was done.
    fn publish(&self, issued: &Issued) -> Result<Instant, Box<dyn Error>> {
        let (chain, key) = (issued.chain_pem(), issued.key_pem());
        let published = self.secret.publish(&[
            ("tls.crt", chain.as_bytes()),
            ("tls.key", key.as_bytes()),
            ("ca.crt", self.ca.cert_pem().as_bytes()),
        ])?;
        published.swapped_at().ok_or_else(|| failed("the new certificate is the old one"))
    }
}

/// The thread that rotates.
struct Rotation {
    issuer: Issuer,
    probe: Arc<Probe>,
    reloader: Arc<Reloader>,
    stop: Arc<Stop>,
    limit: Option<u32>,
}

impl Rotation {
    /// Closes `signals` at the end, so that whoever waits for one goes on.
    fn start(self, signals: Handle) -> io::Result<JoinHandle<Result<Tally, String>>> {
        Builder::new().name("rotate".to_owned()).spawn(move || {
            let outcome = self.rotate_all().map_err(|error| error.to_string());
            signals.close();
            outcome
        })
    }

    fn rotate_all(&self) -> Result<Tally, Box<dyn Error>> {
        let mut tally = Tally::default();
        for nth in 1..=self.limit.unwrap_or(u32::MAX) {
            let next = Instant::now() + PERIOD;
            while let Some(left) = next.checked_duration_since(Instant::now()) {
                if self.stop.wait(None, Some(left))? == Woken::Stopped {
                    return Ok(tally);
                }
            }
            self.rotate(nth, &mut tally)?;
        }
        Ok(tally)
    }

    fn rotate(&self, nth: u32, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
        let issued = self.issuer.issue(nth)?;
        let (running, watching) = self.probe.watch_for(issued.leaf_der().clone(), Arc::clone(&self.stop))?;
        if running.recv().is_err() {
            return Ok(()); // ended before the first handshake
        }
        let renamed = self.issuer.publish(&issued)?;
        let sight = watching.join().map_err(|_| failed("the client had panicked"))?;

        tally.handshakes += sight.handshakes;
        tally.failed += sight.failed;
        if let Some(complaint) = sight.complaint {
            say(&format!("{} handshakes failed, the last one: {complaint}", sight.failed));
        }
        if sight.first.is_none() && self.stop.is_set() {
            return Ok(()); // ended before it could be seen
        }
        tally.rotations += 1;
        let current = self.reloader.current().ok_or_else(|| failed("nothing is served"))?;
        let leaf = current.bundle().leaf();
        let took = match sight.first {
            Some(first) => {
                let took = first.saturating_duration_since(renamed);
                tally.took.push(took);
                format!("{:.2} ms from the rename to the first handshake with it", millis(took))
            }
            None => format!("not seen by the client: {}", self.reloader.health()),
        };
        say(&format!(
            "generation {:<4} serial {:<6} not-after {}   {took}",
            current.number(),
            leaf.serial(),
            clock::rfc3339(leaf.validity().not_after),
        ));
        Ok(())
    }
}

/// What came of all rotations.
#[derive(Default)]
struct Tally {
    rotations: usize,
    handshakes: usize,
    failed: usize,
    took: Vec<Duration>,
}

impl Tally {
    fn is_good(&self) -> bool {
        self.failed == 0 && self.took.len() == self.rotations
    }

    fn summary(&self) -> String {
        let mut took = self.took.clone();
        took.sort();
        let of = |nth: usize| took.get(nth).map_or(0.0, |took| millis(*took));
        format!(
            "{} rotations, {} served; {} handshakes, {} failed; rename to first new handshake: median {:.2} ms, longest {:.2} ms",
            self.rotations,
            took.len(),
            self.handshakes,
            self.failed,
            of(took.len() / 2),
            of(took.len().saturating_sub(1)),
        )
    }
}

fn introduce(mount: &Path, service: &Service, rotations: Option<u32>) {
    let end = match rotations {
        Some(limit) => format!("ends after {limit} rotations"),
        None => "Ctrl-C ends it".to_owned(),
    };
    say(&format!(
        "serving {} on https://{}, rotated every {} s; {end}",
        mount.display(),
        service.addr,
        PERIOD.as_secs(),
    ));
    say(&format!(
        "try:  curl --cacert {} https://localhost:{}/",
        mount.join("ca.crt").display(),
        service.addr.port(),
    ));
}

/// A line on standard output. When nobody reads it any more, that is no reason to panic.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
