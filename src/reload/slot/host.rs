//! The real surroundings of a tracker: the disk, the clocks, the watch, and publishing.

use std::sync::Arc;
use std::time::Instant;

use log::warn;

use super::Shared;
use crate::bundle::{Purpose, Warning};
use crate::events::{Swap, Trigger};
use crate::generation::Generation;
use crate::load::{self, LoadError};
use crate::paths::Paths;
use crate::reload::tracker::Host;
use crate::source::{OsDisk, Snapshot, Timestamp, Trace};
use crate::watch::Watch;

/// The real surroundings of a tracker.
pub(super) struct SlotHost<'a> {
    shared: &'a Shared,
    paths: Paths,
    watch: Option<&'a Watch>,
    first_event: Option<Instant>,
    swaps: Vec<Swap>,
    /// A failure that was told of has ended.
    recovered: bool,
}

impl<'a> SlotHost<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        paths: &Paths,
        watch: Option<&'a Watch>,
        first_event: Option<Instant>,
    ) -> Self {
        let paths = paths.clone();
        Self { shared, paths, watch, first_event, swaps: Vec::new(), recovered: false }
    }

    /// The swaps that were made, and whether a failure that was told of has ended.
    pub(super) fn into_news(self) -> (Vec<Swap>, bool) {
        (self.swaps, self.recovered)
    }

    /// Logs what was let pass, unless it stood before.
    fn warn(&self, previous: Option<&Generation>, generation: &Generation) {
        let bundle = generation.bundle();
        let known = previous.map_or(&[][..], |previous| previous.bundle().warnings());
        let connects = self.shared.store.is_client();
        let concerns = |warning: &Warning| match warning {
            // What a server has need not be good for a client, nor the other way round.
            Warning::PurposeMissing(Purpose::ClientAuth) => connects,
            Warning::PurposeMissing(Purpose::ServerAuth) => {
                !connects || !bundle.leaf().allows(Purpose::ClientAuth)
            }
            _ => true,
        };
        let news = |warning: &&Warning| concerns(warning) && !known.contains(warning);
        for warning in bundle.warnings().iter().filter(news) {
            warn!("identity={} {}", self.shared.identity, warning.display_with(&self.paths));
        }
    }

    pub(super) fn ends_failure(&mut self) {
        let mut status = self.shared.status.lock();
        let ended = status.failing.take().is_some();
        status.stats.recoveries += u64::from(ended);
        self.recovered |= ended;
    }
}

impl Host for SlotHost<'_> {
    type Disk = OsDisk;

    fn disk(&self) -> &OsDisk {
        &OsDisk
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_clock(&self) -> Timestamp {
        Timestamp::now()
    }

    fn watch(&mut self, trace: &Trace) -> bool {
        let Some(watch) = self.watch else {
            return false;
        };
        watch.set(self.shared.id, trace)
    }

    fn accept(&mut self, snapshot: &Snapshot, trigger: Trigger) -> Result<(), LoadError> {
        let now = self.shared.now();
        let store = &self.shared.store;
        let bundle = load::from_snapshot(snapshot, &self.paths, store.settings().provider(), now)?;
        let previous = store.current();
        load::refuse_worse(&bundle, previous.as_ref().map(|live| live.bundle().as_ref()), &self.paths, now)?;
        let bundle = Arc::new(bundle);
        let is_open = || self.shared.gate.is_open();
        while is_open() {
            let previous = store.current();
            let published = store
                .try_publish(&bundle, is_open)
                .map_err(|error| LoadError::Config { paths: Box::new(self.paths.clone()), error })?;
            // Somebody else was quicker: what is on the disk is newer than what he has.
            let Some(generation) = published else { continue };
            self.ends_failure();
            self.warn(previous.as_deref(), &generation);
            let latency = self.first_event.map(|event| event.elapsed());
            self.swaps.push(Swap::new(previous, generation, trigger, latency));
            break;
        }
        Ok(())
    }
}
