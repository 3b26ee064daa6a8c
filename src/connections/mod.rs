//! Which connections are open, on which generation, and how they are asked to end.
//!
//! Knows nothing of how connections are accepted or what is spoken on them.

mod registry;

pub(crate) use registry::{Entry, Origin, Registry, Session, Slot};

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::generation::Generation;
use crate::store::Store;

/// The open connections of one reloader: those that a [`TlsListener`](crate::TlsListener) accepted and that
/// were not dropped yet.
///
/// A clone is another handle to the same. Connections enter and leave without waiting for a reload, a drain or
/// one of these methods.
///
/// Who came in under trust that was taken away stays until somebody ends it. A thread that does so, and leaves
/// everybody else alone:
///
/// ```no_run
/// use std::time::Duration;
///
/// use rustls_reload::{Drain, Reloader};
///
/// # fn example(reloader: &Reloader) -> std::io::Result<()> {
/// let (events, connections) = (reloader.subscribe(), reloader.connections().clone());
/// std::thread::Builder::new().name("drain".into()).spawn(move || {
///     // Ends with the reloader. Where no trust was taken away, a drain of this kind does nothing. What is
///     // withdrawn meanwhile waits for the grace of what was withdrawn before.
///     while events.recv().is_ok() {
///         events.try_iter().for_each(drop);
///         let drained = connections.drain(Drain::Withdrawn, Duration::from_secs(5));
///         println!("{} ended by themselves, {} were cut", drained.ended, drained.cut.len());
///     }
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Connections {
    store: Arc<Store>,
    registry: Arc<Registry>,
}

impl Connections {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store, registry: Arc::default() }
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// How many are open, those that still shake hands included.
    pub fn len(&self) -> usize {
        self.registry.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are open on each generation. Those that still shake hands have none.
    pub fn by_generation(&self) -> BTreeMap<u64, usize> {
        self.registry.by_generation()
    }

    /// How many are open on a generation that is not the current one.
    pub fn stale(&self) -> usize {
        let current = self.store.number();
        self.by_generation().into_iter().filter(|(number, _)| *number != current).map(|(_, open)| open).sum()
    }

    /// Every open connection, the oldest first. For admin pages: it takes time and memory for each.
    pub fn list(&self) -> Vec<ConnectionInfo> {
        let mut list: Vec<_> = self.registry.entries(|_| true).iter().filter_map(info).collect();
        list.sort_by_key(|info| info.accepted);
        list
    }

    /// Asks those of `which` to end, waits until they have or `grace` is over, and cuts the rest: their
    /// socket is shut down, so that a thread that reads or writes returns.
    ///
    /// To be asked means that [`TlsStream::is_draining`](crate::TlsStream::is_draining) is true from then on:
    /// the server finishes what it does and says that it is over (`Connection: close`, GOAWAY). A thread that
    /// waits for its client does not look, and is cut at the end of `grace`: its stream fails from then on,
    /// whatever has arrived already.
    ///
    /// Blocks for as long, so not to be called in a callback of the reloader. Connections that are accepted
    /// meanwhile are not asked. A handshake that is under way on an old generation, when [`Drain::Stale`] or
    /// [`Drain::OlderThan`] is called, ends in a connection that was asked, and is not cut; under withdrawn
    /// trust it fails. May be called again, and by several threads at once.
    pub fn drain(&self, which: Drain, grace: Duration) -> Drained {
        let current = self.store.current();
        let number = current.as_ref().map_or(0, |generation| generation.number());
        let limit = match which {
            Drain::Stale => Some(number),
            Drain::OlderThan(limit) => Some(limit),
            Drain::All | Drain::Withdrawn => None,
        };
        if let Some(limit) = limit {
            self.registry.drain_below(limit);
        }
        let is_older = |slot: &Slot| limit.is_none_or(|limit| slot.generation.is_some_and(|own| own < limit));
        let chosen = self.registry.entries(is_older);
        // One that is about to leave is waited for, too, unless it has to be judged.
        let wanted = |(_, entry): &(u64, Weak<Entry>)| {
            which != Drain::Withdrawn
                || entry.upgrade().zip(current.as_ref()).is_some_and(|(entry, now)| is_withdrawn(&entry, now))
        };
        let chosen = chosen.into_iter().filter(wanted);
        self.registry.end(chosen.collect(), grace)
    }

    /// Blocks until no connection is open, for at most `timeout`. False if some still are.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.registry.wait(timeout, || self.is_empty())
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("open", &self.len()).finish_non_exhaustive()
    }
}

/// Which connections are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drain {
    /// All, those that still shake hands included.
    All,
    /// Those on any generation but the current one.
    Stale,
    /// Those on a generation with a smaller number.
    OlderThan(u64),
    /// Those whose client would not be let in any more by the trust of now: its CA is gone, or its
    /// certificate was revoked. A client certificate that expired since is no reason.
    Withdrawn,
}

/// What came of a drain.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Drained {
    /// So many ended by themselves.
    pub ended: usize,
    /// These were still open when the time was over, and were cut.
    pub cut: Vec<ConnectionInfo>,
}

/// One open connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Where it comes from; `None` for a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The generation it runs on; `None` while it shakes hands.
    pub generation: Option<u64>,
    /// When it was accepted.
    pub accepted: Instant,
}

fn info((_, entry): &(u64, Weak<Entry>)) -> Option<ConnectionInfo> {
    entry.upgrade().map(|entry| entry.info())
}

/// Whether the client of `entry` was let in under trust that `current` has not any more.
fn is_withdrawn(entry: &Entry, current: &Generation) -> bool {
    // As of the handshake: what expired since was not taken away by anybody.
    entry.session().is_some_and(|session| {
        !current.upholds(&session.scope) && current.judge_client(&session.client, session.since).is_err()
    })
}
