//! The series of this crate for Prometheus, made anew at each scrape.
//!
//! Counters are kept here, per identity. Generation, expiry and health are asked of the reloaders when somebody
//! scrapes, so that they cannot be older than the scrape, and are right also when a thread is stuck or gone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rustls::HandshakeKind;
use rustls::pki_types::UnixTime;

use super::{
    ConnectionState, Expiry, ExpiryKind, HandshakeFailure, Metrics, RELOAD_FAILURES, ReloadResult, Subject,
};
use crate::trigger::Trigger;

/// All series of all reloaders that it is given to.
///
/// One label is on each series, `identity`, as the caller chose it: never a path, a name or a serial number. All
/// combinations of labels exist at 0 as soon as an identity is registered, and end with the last reloader that
/// has it. Where reloaders share an identity, counters and connections add, and the other gauges show the worst.
///
/// | series | type, further labels |
/// |---|---|
/// | `tls_reload_attempts_total` | counter, `trigger` = event, resync, manual, startup; `result` = swapped, unchanged, failed |
/// | `tls_reload_failures_total` | counter, `reason` = one of [`RELOAD_FAILURES`] |
/// | `tls_reload_last_check_timestamp_seconds` | gauge: the files were looked at |
/// | `tls_reload_last_success_timestamp_seconds` | gauge: they held, or became, what is served |
/// | `tls_reload_last_swap_timestamp_seconds` | gauge: they became what is served |
/// | `tls_reload_healthy` | gauge, 0 or 1, see [`Subject::is_healthy`] |
/// | `tls_reload_generation` | gauge, 0 before the first |
/// | `tls_reload_duration_seconds` | histogram: from the first event to served |
/// | `tls_reload_missed_event_swaps_total` | counter: found by a resync; the watch is broken |
/// | `tls_reload_watch_overflows_total` | counter |
/// | `tls_cert_not_before_timestamp_seconds` | gauge: of the leaf |
/// | `tls_cert_not_after_timestamp_seconds` | gauge, `kind` = leaf, `chain_min`, `trust_min`; 0 where there is none |
/// | `tls_handshakes_total` | counter, `resumed` = true, false |
/// | `tls_handshake_failures_total` | counter, `reason` = one of [`HandshakeFailure`] |
/// | `tls_connections` | gauge, `state` = current, stale |
///
/// A handshake takes a read lock that is written only when a reloader comes or goes.
#[derive(Debug, Default)]
pub struct Prometheus {
    identities: RwLock<BTreeMap<String, Arc<Series>>>,
}

impl Prometheus {
    /// Adds all series to `registry`. Give what is returned to every reloader.
    ///
    /// Once a registry: twice would give every series twice.
    #[must_use = "the series stay empty until it is given to a reloader"]
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let prometheus = Arc::<Self>::default();
        registry.register_collector(Box::new(Arc::clone(&prometheus)));
        prometheus
    }

    /// What is not there has ended: it is not brought back by a late word.
    fn with(&self, subject: &Subject, note: impl FnOnce(&Series)) {
        if let Some(series) = self.identities.read().get(subject.identity()) {
            note(series);
        }
    }

    fn with_member(&self, subject: &Subject, note: impl FnOnce(&Member)) {
        self.with(subject, |series| {
            if let Some(member) = series.members.read().get(&subject.id()) {
                note(member);
            }
        });
    }
}

impl Metrics for Prometheus {
    fn registered(&self, subject: &Subject) {
        let mut identities = self.identities.write();
        let series = identities.entry(subject.identity().to_owned()).or_default();
        series.members.write().insert(subject.id(), Arc::new(Member::new(subject.clone())));
    }

    fn removed(&self, subject: &Subject) {
        let mut identities = self.identities.write();
        let ended = identities.get(subject.identity()).is_some_and(|series| {
            let mut members = series.members.write();
            members.remove(&subject.id());
            members.is_empty()
        });
        if ended {
            identities.remove(subject.identity());
        }
    }

    fn checked(&self, subject: &Subject, result: ReloadResult, at: UnixTime) {
        let at = at.as_secs();
        self.with_member(subject, |member| {
            // Relaxed, here and below: numbers that nothing else depends on.
            member.checked.store(at, Ordering::Relaxed);
            if result != ReloadResult::Failed {
                member.succeeded.store(at, Ordering::Relaxed);
            }
            if result == ReloadResult::Swapped {
                member.swapped.store(at, Ordering::Relaxed);
            }
        });
    }

    fn reload_attempt(&self, subject: &Subject, trigger: Trigger, result: ReloadResult) {
        self.with(subject, |series| add(&series.attempts, [trigger.as_str(), result.as_str()]));
    }

    fn reload_failure(&self, subject: &Subject, reason: &'static str) {
        self.with(subject, |series| add(&series.failures, [reason]));
    }

    fn reload_duration(&self, subject: &Subject, took: Duration) {
        self.with(subject, |series| series.duration.observe(took.as_secs_f64()));
    }

    fn missed_event_swap(&self, subject: &Subject) {
        self.with(subject, |series| add(&series.missed, []));
    }

    fn watch_overflow(&self, subject: &Subject) {
        self.with(subject, |series| add(&series.overflows, []));
    }

    fn handshake(&self, subject: &Subject, kind: HandshakeKind) {
        let resumed = if kind == HandshakeKind::Resumed { "true" } else { "false" };
        self.with(subject, |series| add(&series.handshakes, [resumed]));
    }

    fn handshake_failure(&self, subject: &Subject, failure: HandshakeFailure) {
        self.with(subject, |series| add(&series.handshake_failures, [failure.as_str()]));
    }
}

impl Collector for Prometheus {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Nobody waits for a slow scrape.
        let identities = self.identities.read().clone();
        let mut page = Page { encoder, identities: &identities };
        page.counters("tls_reload_attempts", "Reads of the files, by what came of them.", |series| {
            rows(&series.attempts, ["trigger", "result"])
        })?;
        page.counters("tls_reload_failures", "Reads of the files that failed, by reason.", |series| {
            rows(&series.failures, ["reason"])
        })?;
        page.gauge(
            "tls_reload_last_check_timestamp_seconds",
            "When the files were last looked at, 0 for never.",
            |series| series.least(|member| member.checked.load(Ordering::Relaxed)),
        )?;
        page.gauge(
            "tls_reload_last_success_timestamp_seconds",
            "When the files last held or became what is served, 0 for never.",
            |series| series.least(|member| member.succeeded.load(Ordering::Relaxed)),
        )?;
        page.gauge(
            "tls_reload_last_swap_timestamp_seconds",
            "When a new generation was last served, 0 for never.",
            |series| series.least(|member| member.swapped.load(Ordering::Relaxed)),
        )?;
        page.gauge(
            "tls_reload_healthy",
            "1 while the files are right, the certificate is valid and changes will be seen at once.",
            |series| series.least(|member| u64::from(member.subject.is_healthy())),
        )?;
        page.gauge(
            "tls_reload_generation",
            "The generation that is served, 0 before the first.",
            |series| series.least(|member| member.subject.generation()),
        )?;
        page.durations()?;
        page.counters(
            "tls_reload_missed_event_swaps",
            "Generations that were found by a resync although the kernel should have told.",
            |series| rows(&series.missed, []),
        )?;
        page.counters("tls_reload_watch_overflows", "Times that events were lost.", |series| {
            rows(&series.overflows, [])
        })?;
        page.gauge(
            "tls_cert_not_before_timestamp_seconds",
            "From when the certificate that is served is valid, 0 without one.",
            |series| series.expiries().iter().map(|expiry| expiry.not_before).max().unwrap_or(0),
        )?;
        page.gauges(
            "tls_cert_not_after_timestamp_seconds",
            "Until when what is served is valid, 0 without one.",
            |series| {
                let expiries = series.expiries();
                let first = |kind| expiries.iter().filter_map(|expiry| expiry.not_after(kind)).min();
                let row = |kind: &ExpiryKind| (vec![("kind", kind.as_str())], first(*kind).unwrap_or(0));
                ExpiryKind::ALL.iter().map(row).collect()
            },
        )?;
        page.counters("tls_handshakes", "Handshakes that were completed.", |series| {
            rows(&series.handshakes, ["resumed"])
        })?;
        page.counters("tls_handshake_failures", "Handshakes that failed, by reason.", |series| {
            rows(&series.handshake_failures, ["reason"])
        })?;
        page.gauges("tls_connections", "Open connections, by what they run on.", |series| {
            let row = |state: &ConnectionState| (vec![("state", state.as_str())], series.open(*state));
            ConnectionState::ALL.iter().map(row).collect()
        })
    }
}

/// What is kept for one identity.
#[derive(Debug)]
struct Series {
    attempts: Counts<2>,
    failures: Counts<1>,
    duration: Histogram,
    missed: Counts<0>,
    overflows: Counts<0>,
    handshakes: Counts<1>,
    handshake_failures: Counts<1>,
    members: RwLock<BTreeMap<u64, Arc<Member>>>,
}

/// One reloader of an identity.
#[derive(Debug)]
struct Member {
    subject: Subject,
    checked: AtomicU64,
    succeeded: AtomicU64,
    swapped: AtomicU64,
}

/// Counters by the values of their labels.
type Counts<const N: usize> = BTreeMap<[&'static str; N], AtomicU64>;

impl Default for Series {
    fn default() -> Self {
        let zero = |values| (values, AtomicU64::new(0));
        let attempts = Trigger::ALL.iter().flat_map(|trigger| {
            ReloadResult::ALL.iter().map(|result| zero([trigger.as_str(), result.as_str()]))
        });
        let zero = |value| ([value], AtomicU64::new(0));
        Self {
            attempts: attempts.collect(),
            failures: RELOAD_FAILURES.iter().copied().map(zero).collect(),
            duration: Histogram::new(BUCKETS),
            missed: Counts::from([([], AtomicU64::new(0))]),
            overflows: Counts::from([([], AtomicU64::new(0))]),
            handshakes: ["false", "true"].map(zero).into(),
            handshake_failures: HandshakeFailure::ALL.iter().map(|failure| zero(failure.as_str())).collect(),
            members: RwLock::default(),
        }
    }
}

impl Series {
    fn least(&self, of: impl Fn(&Member) -> u64) -> i64 {
        self.members().iter().map(|member| of(member)).min().map_or(0, whole)
    }

    fn expiries(&self) -> Vec<Expiry> {
        self.members().iter().filter_map(|member| member.subject.expiry()).collect()
    }

    fn open(&self, state: ConnectionState) -> i64 {
        let open = self
            .members()
            .iter()
            .map(|member| member.subject.connections(state))
            .fold(0, u64::saturating_add);
        whole(open)
    }

    /// Asked outside the lock: to ask may be the last that holds a reloader, and to let go of it calls us.
    fn members(&self) -> Vec<Arc<Member>> {
        self.members.read().values().cloned().collect()
    }
}

impl Member {
    fn new(subject: Subject) -> Self {
        let zero = || AtomicU64::new(0);
        Self { subject, checked: zero(), succeeded: zero(), swapped: zero() }
    }
}

/// One scrape.
struct Page<'e, 'i> {
    encoder: DescriptorEncoder<'e>,
    identities: &'i BTreeMap<String, Arc<Series>>,
}

/// Labels beside the identity, and the value.
type Rows<T> = Vec<(Vec<(&'static str, &'static str)>, T)>;

impl Page<'_, '_> {
    /// The encoder appends `_total`.
    fn counters(&mut self, name: &str, help: &str, of: impl Fn(&Series) -> Rows<u64>) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (identity, series) in self.identities {
            for (labels, value) in of(series) {
                ConstCounter::new(value).encode(family.encode_family(&with_identity(identity, labels))?)?;
            }
        }
        Ok(())
    }

    fn gauges(&mut self, name: &str, help: &str, of: impl Fn(&Series) -> Rows<i64>) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (identity, series) in self.identities {
            for (labels, value) in of(series) {
                ConstGauge::new(value).encode(family.encode_family(&with_identity(identity, labels))?)?;
            }
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, of: impl Fn(&Series) -> i64) -> fmt::Result {
        self.gauges(name, help, |series| vec![(Vec::new(), of(series))])
    }

    fn durations(&mut self) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(
            "tls_reload_duration_seconds",
            "From the first event to the new generation being served.",
            None,
            MetricType::Histogram,
        )?;
        for (identity, series) in self.identities {
            series.duration.encode(family.encode_family(&with_identity(identity, Vec::new()))?)?;
        }
        Ok(())
    }
}

fn with_identity<'a>(identity: &'a str, labels: Vec<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
    std::iter::once(("identity", identity)).chain(labels).collect()
}

fn rows<const N: usize>(counts: &Counts<N>, names: [&'static str; N]) -> Rows<u64> {
    let row = |(values, count): (&[&'static str; N], &AtomicU64)| {
        (names.into_iter().zip(*values).collect(), count.load(Ordering::Relaxed))
    };
    counts.iter().map(row).collect()
}

fn add<const N: usize>(counts: &Counts<N>, values: [&'static str; N]) {
    if let Some(count) = counts.get(&values) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// From what one rename takes to what a settling set and a slow disk take.
const BUCKETS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
