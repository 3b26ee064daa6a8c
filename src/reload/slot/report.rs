//! What a slot tells of itself: the log, events and metrics.

use std::sync::Arc;
use std::time::Instant;

use log::{debug, error, info, warn};

use super::Slot;
use crate::bundle::Date;
use crate::events::{Event, Swap, Trigger};
use crate::load::LoadError;
use crate::metrics::{Live, ReloadResult};
use crate::reload::expiry;
use crate::reload::schedule::Verdict;

impl Slot {
    /// Warns when the certificate that is served runs out, whatever happens on the disk. Judged by the wall
    /// clock each time that the slot is looked after, so that a clock that jumps is seen within a resync.
    pub(super) fn warn_of_expiry(&mut self) {
        let Some(expiry) = &mut self.expiry else { return };
        let now = i64::try_from(self.shared.now().as_secs()).unwrap_or(i64::MAX);
        let due = expiry.due(now);
        self.expiry_at = expiry.next(now).and_then(|wait| Instant::now().checked_add(wait));
        let Some(generation) = self.shared.store.current().filter(|_| due.is_some()) else { return };
        let leaf = generation.bundle().leaf();
        let (identity, serial, not_after) = (&self.shared.identity, leaf.serial(), leaf.validity().not_after);
        match due {
            Some(expiry::Notice::Expiring { left }) => {
                let minutes = left.as_secs() / 60;
                let left_text =
                    if minutes < 120 { format!("{minutes} min") } else { format!("{} h", minutes / 60) };
                warn!("identity={identity} serial={serial} not_after={not_after} expires in {left_text}");
                self.tell(&Event::Expiring { generation, left });
            }
            Some(expiry::Notice::Expired) => {
                error!(
                    "identity={identity} serial={serial} not_after={not_after} has expired, and is still served"
                );
                self.tell(&Event::Expired { generation });
            }
            None => {}
        }
    }

    /// A revocation list that runs out while it is in force: said once.
    pub(super) fn warn_of_expired_crl(&mut self) {
        let current = self.shared.store.current();
        let next_update = current.as_ref().and_then(|live| live.bundle().trust()?.crl_next_update());
        let now = i64::try_from(self.shared.now().as_secs()).unwrap_or(i64::MAX);
        let expired = next_update.filter(|next_update| *next_update <= now);
        if let Some(next_update) = expired.filter(|_| self.crl_expired != expired) {
            warn!(
                "identity={} a revocation list has expired: its successor was due at {}",
                self.shared.identity,
                Date(next_update)
            );
        }
        self.crl_expired = expired;
    }

    /// A staple that runs out while it is served is worse than none: the same bundle goes on without it.
    pub(super) fn drop_stale_staple(&self) {
        let Some(previous) = self.shared.store.current() else { return };
        let Some(bundle) = previous.bundle().without_stale_staple(self.shared.now()) else { return };
        match self.shared.store.try_publish(&Arc::new(bundle), || self.shared.gate.is_open()) {
            Ok(Some(generation)) => {
                warn!("identity={} the OCSP response ran out: no longer stapled", self.shared.identity);
                self.announce(Swap::new(Some(previous), generation, Trigger::Resync, None), false);
            }
            Ok(None) => {}
            // The same trust made a config before.
            Err(error) => warn!("identity={} {error}", self.shared.identity),
        }
    }

    /// Tells of a new generation; `missed` if an event should have led to it and did not come.
    pub(super) fn announce(&self, swap: Swap, missed: bool) {
        {
            let mut status = self.shared.status.lock();
            status.stats.swaps += 1;
            status.stats.missed_events += u64::from(missed);
        }
        log_swap(&self.shared.identity, &swap);
        self.report_swap(&swap, missed);
        if swap.trigger() != Trigger::Startup {
            self.tell(&Event::Swapped(swap));
        }
    }

    /// A failure that lasts: said once, and again when the reason changes.
    pub(super) fn failed(&mut self, error: LoadError, verdict: Verdict) {
        if verdict == Verdict::Transient {
            debug!("identity={} not loaded, tried again soon: {error}", self.shared.identity);
            return;
        }
        self.first_event = None;
        let text = error.to_string();
        let error = Arc::new(error);
        {
            let mut status = self.shared.status.lock();
            let said = status.failing.as_ref().is_some_and(|(_, said)| said.to_string() == text);
            if verdict == Verdict::Known && said {
                return;
            }
            let since = status.failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            status.failing = Some((since, Arc::clone(&error)));
            if verdict == Verdict::Report {
                status.stats.loads += 1;
                status.stats.failures += 1;
            }
        }
        match self.shared.store.number() {
            0 => warn!("identity={} nothing is served yet: {text}", self.shared.identity),
            serving => warn!("identity={} generation={serving} keeps serving: {text}", self.shared.identity),
        }
        self.tell(&Event::Failed(error));
    }

    pub(super) fn report_swap(&self, swap: &Swap, missed: bool) {
        self.checked(ReloadResult::Swapped);
        let number = swap.generation().number();
        self.shared.report(|metrics, subject| {
            metrics.reload_attempt(subject, swap.trigger(), ReloadResult::Swapped);
            metrics.set_generation(subject, number);
            if let Some(expiry) = subject.expiry() {
                metrics.set_expiry(subject, expiry);
            }
            if let Some(latency) = swap.latency() {
                metrics.reload_duration(subject, latency);
            }
            if missed {
                metrics.missed_event_swap(subject);
            }
        });
    }

    pub(super) fn report_failure(&self, trigger: Trigger, error: &LoadError) {
        self.checked(ReloadResult::Failed);
        self.shared.report(|metrics, subject| {
            metrics.reload_attempt(subject, trigger, ReloadResult::Failed);
            metrics.reload_failure(subject, error.reason());
        });
    }

    /// A look from time to time that finds nothing new is no attempt, and neither is the second look at start.
    pub(super) fn unchanged(&mut self, trigger: Trigger) {
        self.checked(ReloadResult::Unchanged);
        let starting = std::mem::replace(&mut self.starting, false) && trigger == Trigger::Event;
        if trigger != Trigger::Resync && !starting {
            self.shared
                .report(|metrics, subject| metrics.reload_attempt(subject, trigger, ReloadResult::Unchanged));
        }
    }

    pub(super) fn checked(&self, result: ReloadResult) {
        let now = self.shared.now();
        self.shared.report(|metrics, subject| metrics.checked(subject, result, now));
    }

    pub(super) fn report_health(&mut self) {
        let healthy = self.shared.is_healthy();
        if self.healthy.replace(healthy) != Some(healthy) {
            self.shared.report(|metrics, subject| metrics.set_healthy(subject, healthy));
        }
    }
}

fn log_swap(identity: &str, swap: &Swap) {
    let number = swap.generation().number();
    let leaf = swap.generation().bundle().leaf();
    let (serial, not_after) = (leaf.serial(), leaf.validity().not_after);
    let trigger = swap.trigger().as_str();
    let latency = swap.latency().map_or_else(String::new, |latency| format!(" latency={latency:.1?}"));
    let changed = swap.difference().map_or_else(String::new, |changes| format!(" changed=\"{changes}\""));
    info!(
        "identity={identity} generation={number} serial={serial} not_after={not_after} trigger={trigger}{latency}{changed} now serving"
    );
}
