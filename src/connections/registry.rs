//! Where connections enter and leave: sharded, and never held while somebody waits.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustls::pki_types::{CertificateDer, UnixTime};

use super::{ConnectionInfo, Drained};
use crate::server::ScopeId;
use crate::socket::Socket;

/// All open connections.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    shards: [Mutex<HashMap<u64, Slot>>; SHARDS],
    next: AtomicU64,
    open: AtomicUsize,
    /// Connections on generations below this were asked to end.
    drained_below: AtomicU64,
    /// How many threads wait for connections to leave.
    waiting: AtomicUsize,
    gate: Mutex<()>,
    left: Condvar,
}

/// What is known of a connection without asking it.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `None` while it shakes hands.
    pub(crate) generation: Option<u64>,
    pub(crate) origin: Origin,
    entry: Weak<Entry>,
}

/// Who accepted it, with how many of its connections are open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin(Arc<AtomicUsize>);

impl Origin {
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Registry {
    /// Enters a connection that was accepted. It leaves when the entry is dropped.
    pub(crate) fn enter(
        self: &Arc<Self>,
        socket: Socket,
        peer: Option<SocketAddr>,
        origin: &Origin,
    ) -> Arc<Entry> {
        // Relaxed: only to be different.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry {
            socket,
            peer,
            accepted: Instant::now(),
            draining: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            session: OnceLock::new(),
            ticket: Ticket { id, origin: origin.clone(), registry: Arc::clone(self) },
        });
        self.open.fetch_add(1, Ordering::SeqCst);
        origin.0.fetch_add(1, Ordering::SeqCst);
        let slot = Slot { generation: None, origin: origin.clone(), entry: Arc::downgrade(&entry) };
        self.shard(id).lock().insert(id, slot);
        entry
    }

    pub(crate) fn len(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn by_generation(&self) -> BTreeMap<u64, usize> {
        let mut open = BTreeMap::new();
        for shard in &self.shards {
            for generation in shard.lock().values().filter_map(|slot| slot.generation) {
                *open.entry(generation).or_default() += 1;
            }
        }
        open
    }

    /// Those that are wanted. Weak: whoever holds a connection for longer than a look keeps its
    /// socket from being closed.
    pub(crate) fn entries(&self, wanted: impl Fn(&Slot) -> bool) -> Vec<(u64, Weak<Entry>)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let wanted = shard.iter().filter(|(_, slot)| wanted(slot));
            found.extend(wanted.map(|(id, slot)| (*id, Weak::clone(&slot.entry))));
        }
        found
    }

    /// Handshakes that are under way on generations below this begin as asked to end.
    pub(crate) fn drain_below(&self, generation: u64) {
        // SeqCst, here and in `establish`, with the lock of the shard in between: either the drain that comes now
        // finds the connection, or the connection finds this.
        self.drained_below.fetch_max(generation, Ordering::SeqCst);
    }

    /// Asks all of `chosen` to end, and cuts those that have not within `grace`.
    pub(crate) fn end(&self, chosen: Vec<(u64, Weak<Entry>)>, grace: Duration) -> Drained {
        let before = chosen.len();
        for entry in chosen.iter().filter_map(|(_, entry)| entry.upgrade()) {
            // Relaxed: a request that is looked at now and then.
            entry.draining.store(true, Ordering::Relaxed);
        }
        self.wait(grace, || {
            // Cheap, but a moment early; so the last word is the registry's.
            let gone = !chosen.iter().any(|(_, entry)| entry.strong_count() > 0);
            gone && !chosen.iter().any(|(id, _)| self.shard(*id).lock().contains_key(id))
        });
        let cut: Vec<_> =
            chosen.iter().filter_map(|(_, entry)| entry.upgrade()).map(|entry| entry.cut()).collect();
        Drained { ended: before - cut.len(), cut }
    }

    /// Blocks until `done`, which is asked again whenever a connection left, for at most `timeout`. What it
    /// said last.
    pub(crate) fn wait(&self, timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        // SeqCst, here and in `leave`: either we see that it left, or it sees that we wait.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut gate = self.gate.lock();
        let mut is_done = done();
        while !is_done {
            let timed_out = match deadline {
                Some(deadline) => self.left.wait_until(&mut gate, deadline).timed_out(),
                None => {
                    self.left.wait(&mut gate);
                    false
                }
            };
            is_done = done();
            if timed_out {
                break;
            }
        }
        drop(gate);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        is_done
    }

    /// Asks everybody who waits to look again.
    pub(crate) fn nudge(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _after_their_look = self.gate.lock();
            self.left.notify_all();
        }
    }

    fn leave(&self, id: u64, origin: &Origin) {
        origin.0.fetch_sub(1, Ordering::SeqCst);
        self.open.fetch_sub(1, Ordering::SeqCst);
        // Last, as `end` takes it for the end.
        self.shard(id).lock().remove(&id);
        self.nudge();
    }

    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Slot>> {
        let index = usize::try_from(id).unwrap_or_default() % SHARDS;
        #[expect(clippy::indexing_slicing, reason = "a remainder of the length")]
        &self.shards[index]
    }
}

/// One open connection. Its stream holds it; all others look at it and let go at once.
pub(crate) struct Entry {
    // Closed before `ticket` says that it left.
    socket: Socket,
    peer: Option<SocketAddr>,
    accepted: Instant,
    draining: AtomicBool,
    cut: AtomicBool,
    session: OnceLock<Session>,
    ticket: Ticket,
}

/// What a handshake settled.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) generation: u64,
    pub(crate) scope: ScopeId,
    /// What the client showed, leaf first; empty if nothing.
    pub(crate) client: Vec<CertificateDer<'static>>,
    pub(crate) since: UnixTime,
}

impl Entry {
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.get()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether its time is over: what the kernel or rustls still hold of it is not to be served.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// The handshake is done. From now on a drain finds it by generation and trust.
    ///
    /// Whoever looks at the current generation after this, and is content, may go on: a drain that began
    /// before this call has published before, and one that begins later finds the session.
    pub(crate) fn establish(&self, session: Session) {
        let generation = session.generation;
        let Ticket { id, registry, .. } = &self.ticket;
        let mut shard = registry.shard(*id).lock();
        if self.session.set(session).is_ok()
            && let Some(slot) = shard.get_mut(id)
        {
            slot.generation = Some(generation);
        }
        drop(shard);
        // A drain that was too early to find it.
        if generation < registry.drained_below.load(Ordering::SeqCst) {
            self.draining.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn info(&self) -> ConnectionInfo {
        let generation = self.session().map(|session| session.generation);
        ConnectionInfo { peer: self.peer, generation, accepted: self.accepted }
    }

    /// Ends it for whoever reads or writes.
    fn cut(&self) -> ConnectionInfo {
        self.cut.store(true, Ordering::SeqCst);
        // It may have ended by itself a moment ago.
        self.socket.shutdown(Shutdown::Both).ok();
        self.info()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// The place of a connection in its registry.
struct Ticket {
    id: u64,
    origin: Origin,
    registry: Arc<Registry>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.registry.leave(self.id, &self.origin);
    }
}

/// More than threads that enter and leave at the same moment.
const SHARDS: usize = 16;
