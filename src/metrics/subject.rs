//! Whom a number is about, and what can be asked of it at any time.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::ConnectionState;

/// One reloader, as metrics see it. A clone is the same one; it keeps nothing alive.
#[derive(Clone)]
pub struct Subject {
    inner: Arc<Inner>,
}

struct Inner {
    identity: String,
    id: u64,
    live: Weak<dyn Live>,
}

/// What lives as long as the reloader, and answers at any time without waiting for its threads.
pub(crate) trait Live: Send + Sync {
    fn generation(&self) -> u64;
    fn expiry(&self) -> Option<Expiry>;
    fn connections(&self, state: ConnectionState) -> u64;
    fn is_healthy(&self) -> bool;
}

impl Subject {
    pub(crate) fn new(identity: String, live: Weak<dyn Live>) -> Self {
        // Relaxed: only to be different.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { inner: Arc::new(Inner { identity, id, live }) }
    }

    /// The label that the caller chose. Several reloaders may have the same.
    pub fn identity(&self) -> &str {
        &self.inner.identity
    }

    /// Different for every reloader of the process. Not a label: it is another one after a restart.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The number of the generation that is served; 0 while there is none.
    pub fn generation(&self) -> u64 {
        self.inner.live.upgrade().map_or(0, |live| live.generation())
    }

    /// Of what is served now; `None` while there is nothing.
    pub fn expiry(&self) -> Option<Expiry> {
        self.inner.live.upgrade().and_then(|live| live.expiry())
    }

    /// How many connections of its listeners are open.
    pub fn connections(&self, state: ConnectionState) -> u64 {
        self.inner.live.upgrade().map_or(0, |live| live.connections(state))
    }

    /// Whether the files are right, a valid certificate is served and changes will be seen at once. False
    /// where a thread is stuck or gone, or where polling has to do.
    pub fn is_healthy(&self) -> bool {
        self.inner.live.upgrade().is_some_and(|live| live.is_healthy())
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { identity, id, .. } = &*self.inner;
        f.debug_struct("Subject").field("identity", identity).field("id", id).finish_non_exhaustive()
    }
}

/// When a generation begins and ends to be valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expiry {
    /// Of the leaf.
    pub not_before: i64,
    /// Of the leaf.
    pub leaf: i64,
    /// The earliest not-after of leaf and chain.
    pub chain_min: i64,
    /// The earliest not-after of the trust anchors, if there are any.
    pub trust_min: Option<i64>,
}

impl Expiry {
    pub(crate) fn new(not_before: i64, leaf: i64, chain_min: i64, trust_min: Option<i64>) -> Self {
        Self { not_before, leaf, chain_min, trust_min }
    }

    /// The last second of `kind`.
    pub fn not_after(&self, kind: ExpiryKind) -> Option<i64> {
        match kind {
            ExpiryKind::Leaf => Some(self.leaf),
            ExpiryKind::ChainMin => Some(self.chain_min),
            ExpiryKind::TrustMin => self.trust_min,
        }
    }
}

/// What expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExpiryKind {
    /// The leaf.
    Leaf,
    /// The first of leaf and chain.
    ChainMin,
    /// The first of the trust anchors.
    TrustMin,
}

impl ExpiryKind {
    /// All there are.
    pub const ALL: &'static [Self] = &[Self::Leaf, Self::ChainMin, Self::TrustMin];

    /// A short stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leaf => "leaf",
            Self::ChainMin => "chain_min",
            Self::TrustMin => "trust_min",
        }
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);
