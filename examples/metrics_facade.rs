//! Metrics through the facade crate `metrics`, for programs that count with it already.
//!
//! ```text
//! cargo run --example metrics_facade
//! ```
//!
//! The adapter is what a program needs. The rest is a recorder that prints, where a program has an exporter of
//! its choice, and one rotation to look at. The facade knows no end of a series and no pull at scrape time: for
//! both, see `metrics::Prometheus` of the library.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, counter, gauge, histogram,
};
use rustls::HandshakeKind;
use rustls::pki_types::UnixTime;
use rustls_reload::issue::{Ca, Issued};
use rustls_reload::metrics::{
    ConnectionState, Expiry, ExpiryKind, HandshakeFailure, Metrics, ReloadResult, Subject,
};
use rustls_reload::publish::SecretDir;
use rustls_reload::{Paths, Reloader, Trigger};

/// Hands every number to whatever recorder the program has installed.
struct Facade;

impl Metrics for Facade {
    fn checked(&self, subject: &Subject, result: ReloadResult, at: UnixTime) {
        let at = seconds(at.as_secs());
        gauge!("tls_reload_last_check_timestamp_seconds", "identity" => label(subject)).set(at);
        if result != ReloadResult::Failed {
            gauge!("tls_reload_last_success_timestamp_seconds", "identity" => label(subject)).set(at);
        }
        if result == ReloadResult::Swapped {
            gauge!("tls_reload_last_swap_timestamp_seconds", "identity" => label(subject)).set(at);
        }
        // The facade has no call at scrape time: this one comes with each resync, every 10 s.
        for state in ConnectionState::ALL {
            let open = seconds(subject.connections(*state));
            gauge!("tls_connections", "identity" => label(subject), "state" => state.as_str()).set(open);
        }
    }

    fn reload_attempt(&self, subject: &Subject, trigger: Trigger, result: ReloadResult) {
        let (trigger, result) = (trigger.as_str(), result.as_str());
        counter!("tls_reload_attempts_total", "identity" => label(subject), "trigger" => trigger, "result" => result)
            .increment(1);
    }

    fn reload_failure(&self, subject: &Subject, reason: &'static str) {
        counter!("tls_reload_failures_total", "identity" => label(subject), "reason" => reason).increment(1);
    }

    fn reload_duration(&self, subject: &Subject, took: Duration) {
        histogram!("tls_reload_duration_seconds", "identity" => label(subject)).record(took);
    }

    fn set_generation(&self, subject: &Subject, number: u64) {
        gauge!("tls_reload_generation", "identity" => label(subject)).set(seconds(number));
    }

    fn set_expiry(&self, subject: &Subject, expiry: Expiry) {
        let not_before = seconds(u64::try_from(expiry.not_before).unwrap_or(0));
        gauge!("tls_cert_not_before_timestamp_seconds", "identity" => label(subject)).set(not_before);
        for kind in ExpiryKind::ALL {
            // 0 where there is none any more: the last one must not stay.
            let at = u64::try_from(expiry.not_after(*kind).unwrap_or(0)).unwrap_or(0);
            gauge!("tls_cert_not_after_timestamp_seconds", "identity" => label(subject), "kind" => kind.as_str())
                .set(seconds(at));
        }
    }

    fn set_healthy(&self, subject: &Subject, healthy: bool) {
        gauge!("tls_reload_healthy", "identity" => label(subject)).set(f64::from(u8::from(healthy)));
    }

    fn missed_event_swap(&self, subject: &Subject) {
        counter!("tls_reload_missed_event_swaps_total", "identity" => label(subject)).increment(1);
    }

    fn watch_overflow(&self, subject: &Subject) {
        counter!("tls_reload_watch_overflows_total", "identity" => label(subject)).increment(1);
    }

    fn handshake(&self, subject: &Subject, kind: HandshakeKind) {
        let resumed = if kind == HandshakeKind::Resumed { "true" } else { "false" };
        counter!("tls_handshakes_total", "identity" => label(subject), "resumed" => resumed).increment(1);
    }

    fn handshake_failure(&self, subject: &Subject, failure: HandshakeFailure) {
        counter!("tls_handshake_failures_total", "identity" => label(subject), "reason" => failure.as_str())
            .increment(1);
    }
}

fn label(subject: &Subject) -> String {
    subject.identity().to_owned()
}

/// The facade counts in `f64`, which holds whole numbers up to 2^53.
fn seconds(whole: u64) -> f64 {
    Duration::from_secs(whole).as_secs_f64()
}

fn main() -> Result<(), Box<dyn Error>> {
    metrics::set_global_recorder(Printer)?;
    let home = tempfile::tempdir()?;
    let mount = home.path().join("tls");
    let (ca, secret) = (Ca::new("demonstration CA")?, SecretDir::open(&mount)?);
    publish(&secret, &ca.server(&["localhost"]).issue()?)?;
    let reloader =
        Reloader::builder(Paths::secret(&mount)).identity("demo").metrics(Arc::new(Facade)).start()?;
    publish(&secret, &ca.server(&["localhost"]).issue()?)?;
    let served = reloader.wait_for(2, Duration::from_secs(5)).ok_or("the rotation was not seen")?;
    reloader.shutdown();
    drop(writeln!(io::stdout(), "generation {} is served", served.number()));
    Ok(())
}

fn publish(secret: &SecretDir, issued: &Issued) -> Result<(), Box<dyn Error>> {
    let (chain, key) = (issued.chain_pem(), issued.key_pem());
    secret.publish(&[("tls.crt", chain.as_bytes()), ("tls.key", key.as_bytes())])?;
    Ok(())
}

/// Stands for an exporter.
struct Printer;

impl Recorder for Printer {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Line(key.clone())))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Line(key.clone())))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Line(key.clone())))
    }
}

struct Line(Key);

impl Line {
    fn print(&self, change: &str) {
        let labels: Vec<_> =
            self.0.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        drop(writeln!(io::stdout(), "{} {} {change}", self.0.name(), labels.join(" ")));
    }
}

impl CounterFn for Line {
    fn increment(&self, value: u64) {
        self.print(&format!("+{value}"));
    }

    fn absolute(&self, value: u64) {
        self.print(&format!("={value}"));
    }
}

impl GaugeFn for Line {
    fn increment(&self, value: f64) {
        self.print(&format!("+{value}"));
    }

    fn decrement(&self, value: f64) {
        self.print(&format!("-{value}"));
    }

    fn set(&self, value: f64) {
        self.print(&format!("={value}"));
    }
}

impl HistogramFn for Line {
    fn record(&self, value: f64) {
        self.print(&format!("observed {value:.6}"));
    }
}
