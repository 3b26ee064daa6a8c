//! What goes wrong beside TLS: counted each time, logged once until it is right again.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// One thing that can fail.
#[derive(Debug)]
pub(crate) struct Tally {
    what: &'static str,
    count: Counter,
    failing: AtomicBool,
}

impl Tally {
    /// `what` is how the log line begins; `name` and `help` are those of the series.
    pub(crate) fn register(
        registry: &mut Registry,
        what: &'static str,
        name: &'static str,
        help: &'static str,
    ) -> Self {
        let count = Counter::default();
        registry.register(name, help, count.clone());
        Self { what, count, failing: AtomicBool::new(false) }
    }

    pub(crate) fn failed(&self, error: &dyn Display) {
        self.count.inc();
        // Relaxed: two lines instead of one hurt nobody.
        if !self.failing.swap(true, Ordering::Relaxed) {
            log::warn!("{}: {error}", self.what);
        }
    }

    pub(crate) fn succeeded(&self) {
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            log::info!("{}: right again", self.what);
        }
    }
}
