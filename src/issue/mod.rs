//! A small certificate authority: for tests, for the first boot before the real certificate is there, for labs.
//!
//! Makes what it is asked for, also what nobody should use (expired, one key in two certificates, a serial
//! twice): tests need that. It keeps no records and stores nothing; a CA lives as long as the value. It is no
//! replacement for a real CA.
//!
//! ```
//! use rustls_reload::issue::Ca;
//!
//! let root = Ca::new("lab root")?;
//! let issuing = root.intermediate("lab issuing CA").build()?;
//! let first = issuing.server(&["localhost", "127.0.0.1"]).issue()?;
//! let renewed = issuing.server(&["localhost", "127.0.0.1"]).key(first.key()).issue()?;
//!
//! let files = [
//!     ("tls.crt", renewed.chain_pem()), // leaf and intermediate, as a server sends them
//!     ("tls.key", renewed.key_pem().to_string()),
//!     ("ca.crt", root.cert_pem().to_owned()),
//! ];
//! # assert!(files.iter().all(|(_, pem)| pem.starts_with("-----BEGIN ")));
//! # Ok::<(), rustls_reload::issue::IssueError>(())
//! ```
//!
//! # Time
//!
//! Instants are Unix seconds (`i64`), as X.509 can hold them: 1950 to 9999, whole seconds. What is not given
//! is taken from the system clock: a CA from a day ago for ten years, a leaf from an hour ago for 90 days, a
//! CRL from an hour ago for seven days. On a machine whose clock starts in 1970, give the instants.

mod authority;
mod crl;
mod dates;
mod key;
mod leaf;
#[cfg(test)]
mod tests;

pub use authority::{Ca, CaBuilder};
pub use crl::{Crl, CrlBuilder};
pub use key::{Key, KeyType};
pub use leaf::{Issued, LeafBuilder};

/// Starts a certificate that is its own issuer, for a server that has none yet.
///
/// Peers can only trust it by being given exactly this certificate. See [`LeafBuilder`].
///
/// ```
/// use rustls_reload::issue;
///
/// let bootstrap = issue::self_signed(&["gateway.local"]).issue()?;
/// assert_eq!(bootstrap.chain_pem().matches("BEGIN CERTIFICATE").count(), 1);
/// # Ok::<(), issue::IssueError>(())
/// ```
pub fn self_signed(names: &[&str]) -> LeafBuilder<'static> {
    LeafBuilder::self_signed(names)
}

/// Why nothing was issued. Holds what was asked for, never a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// A server certificate without a name.
    #[error("a server certificate needs at least one name")]
    NoNames,
    /// A name that cannot stand in a certificate.
    #[error(
        "{name:?}: expected a DNS name, an IP address or a URI: does an international name want punycode?"
    )]
    #[non_exhaustive]
    Name {
        /// The name as it was given.
        name: String,
    },
    /// A URL that cannot stand in a certificate.
    #[error("{url:?}: expected a URL of ASCII characters")]
    #[non_exhaustive]
    Url {
        /// The URL as it was given.
        url: String,
    },
    /// Two instants in the wrong order, or one that X.509 cannot hold.
    #[error("from {from} to {to}: expected two Unix times in this order, from 1950 to 9999")]
    #[non_exhaustive]
    Period {
        /// Not-before or this-update, in Unix seconds.
        from: i64,
        /// Not-after or next-update, in Unix seconds.
        to: i64,
    },
    /// The crypto backend in use cannot make a key of this type.
    #[error(
        "{key_type:?}: this crypto backend cannot generate such a key: is one from `Key::from_pem` at hand?"
    )]
    #[non_exhaustive]
    Generate {
        /// The type that was asked for.
        key_type: KeyType,
    },
    /// Text that is not one unencrypted PKCS#8 key of a type that the crypto backend can use.
    #[error("expected one `PRIVATE KEY` block (PKCS#8, not encrypted) of a supported type")]
    Key,
    /// The crypto backend refused to sign.
    #[error("cannot sign {what}")]
    #[non_exhaustive]
    Sign {
        /// What was to be signed.
        what: &'static str,
    },
}
