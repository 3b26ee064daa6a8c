//! What the handles of an identity, the reload thread and metrics share.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustls::pki_types::UnixTime;

use crate::connections::Connections;
use crate::events::{Gate, Listeners};
use crate::metrics::{ConnectionState, Expiry, Live, Metrics, Reporter, Subject};
use crate::reload::health::{Health, Stats, Status};
use crate::reload::watcher::Pulse;
use crate::store::Store;
use crate::watch::SlotId;

/// What handles, the reload thread and health share.
#[derive(Debug)]
pub(in crate::reload) struct Shared {
    pub(in crate::reload) id: SlotId,
    /// The label of logs and metrics.
    pub(in crate::reload) identity: String,
    pub(in crate::reload) store: Arc<Store>,
    pub(in crate::reload) listeners: Listeners,
    pub(in crate::reload) gate: Gate,
    pub(in crate::reload) reporter: Reporter,
    pub(in crate::reload) pulse: Pulse,
    pub(in crate::reload) connections: Connections,
    pub(in crate::reload) status: Mutex<Status>,
}

impl Shared {
    pub(in crate::reload) fn now(&self) -> UnixTime {
        self.store.now()
    }

    pub(in crate::reload) fn stats(&self) -> Stats {
        Stats {
            callback_panics: self.listeners.panics() + self.reporter.panics(),
            dropped_events: self.listeners.dropped(),
            ..self.status.lock().stats
        }
    }

    pub(in crate::reload) fn health(&self) -> Health {
        if !self.gate.is_open() {
            return Health::Stopped;
        }
        self.pulse.health(Instant::now()).unwrap_or_else(|| {
            let live = self.store.current();
            self.status.lock().health(live.as_ref().map(|live| live.bundle().as_ref()), self.now())
        })
    }

    /// Tells metrics, as if it were a callback.
    pub(super) fn report(&self, tell: impl FnOnce(&dyn Metrics, &Subject)) {
        self.listeners.call(&self.gate, || self.reporter.report(tell));
    }
}

impl Live for Shared {
    fn generation(&self) -> u64 {
        self.store.number()
    }

    fn expiry(&self) -> Option<Expiry> {
        let generation = self.store.current()?;
        let bundle = generation.bundle();
        let validity = bundle.leaf().validity();
        let trust = bundle.trust().and_then(|trust| trust.trust_not_after());
        Some(Expiry::new(validity.not_before, validity.not_after, bundle.chain_not_after(), trust))
    }

    fn connections(&self, state: ConnectionState) -> u64 {
        let stale = self.connections.stale();
        let open = match state {
            ConnectionState::Current => self.connections.len().saturating_sub(stale),
            ConnectionState::Stale => stale,
        };
        u64::try_from(open).unwrap_or(u64::MAX)
    }

    fn is_healthy(&self) -> bool {
        let well = matches!(self.health(), Health::Ready | Health::ExpiringSoon { .. });
        well && self.status.lock().degraded.is_none()
    }
}
