//! What changed from one generation to the next.

use std::fmt;

use crate::bundle::{Bundle, Fingerprint};

/// What changed from one bundle to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Another leaf certificate.
    pub leaf: bool,
    /// Other certificates behind the leaf.
    pub chain: bool,
    /// Another key. A renewal may keep it.
    pub key: bool,
    /// CA certificates that are trusted now.
    pub trust_added: Vec<Fingerprint>,
    /// CA certificates that are no longer trusted.
    pub trust_removed: Vec<Fingerprint>,
    /// Other revocation lists.
    pub crls: bool,
    /// Another OCSP response, or one where there was none.
    pub ocsp: bool,
}

impl Difference {
    /// What changed from `before` to `now`.
    pub fn between(before: &Bundle, now: &Bundle) -> Self {
        let anchors =
            |bundle: &Bundle| bundle.trust().map(|trust| trust.fingerprints().clone()).unwrap_or_default();
        let crls = |bundle: &Bundle| bundle.trust().map(|trust| trust.crls().to_vec()).unwrap_or_default();
        let (trusted, trusts) = (anchors(before), anchors(now));
        Self {
            leaf: before.fingerprint() != now.fingerprint(),
            chain: before.chain().get(1..) != now.chain().get(1..),
            key: before.leaf().spki_fingerprint() != now.leaf().spki_fingerprint(),
            trust_added: trusts.difference(&trusted).copied().collect(),
            trust_removed: trusted.difference(&trusts).copied().collect(),
            crls: crls(before) != crls(now),
            ocsp: before.certified_key().ocsp != now.certified_key().ocsp,
        }
    }

    /// Whether something that was trusted may not be any more: a CA is gone, or a revocation list is another.
    pub fn withdraws_trust(&self) -> bool {
        !self.trust_removed.is_empty() || self.crls
    }
}

/// One line: "leaf, key, 1 CA added".
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: usize, what: &str| (count > 0).then(|| format!("{count} CA {what}"));
        let named = |changed: bool, what: &str| changed.then(|| what.to_owned());
        let parts: Vec<_> = [
            named(self.leaf, "leaf"),
            named(self.chain, "chain"),
            named(self.key, "key"),
            counted(self.trust_added.len(), "added"),
            counted(self.trust_removed.len(), "removed"),
            named(self.crls, "CRL"),
            named(self.ocsp, "OCSP"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() {
            // The files differ in what is not served: text between blocks, for example.
            return f.write_str("nothing that is served");
        }
        f.write_str(&parts.join(", "))
    }
}
