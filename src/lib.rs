//! Keeps the TLS certificates, keys and trust of a running process fresh while the files on disk rotate.
//!
//! For blocking, thread-based programs: no async runtime. Begin with [`Reloader::builder`] and [`Paths`].
//!
//! | to | see |
//! |---|---|
//! | serve | [`TlsListener`]; or [`Reloader::server_config`], a config for each connection |
//! | verify clients | [`ReloaderBuilder::client_auth`] |
//! | connect to others | [`ReloaderBuilder::server_roots`], [`Reloader::client_config`] |
//! | find and end connections that are open | [`Reloader::connections`] |
//! | keep a config that a framework holds | [`Reloader::resolver`], [`Reloader::client_verifier`] |
//! | know what happens | [`ReloaderBuilder::on_event`], [`Reloader::subscribe`], [`Reloader::health`], [`metrics`] |
//! | run many identities on two threads | [`Watcher`] |
//! | load or publish without watching | [`Bundle`], [`Store`] |
//! | put files in place for others to read | [`publish`] |
//! | have certificates for tests and first boot | `issue`, with the feature of that name |
//!
//! Features: `ring` (default) or `aws-lc-rs`; `system-roots` (default), the roots of the operating system;
//! `prometheus`; `issue`. Logs go through the crate `log`.
//!
//! ```no_run
//! use rustls_reload::{Paths, Reloader};
//!
//! let reloader = Reloader::builder(Paths::secret("/etc/tls")).start()?;
//! let config = reloader.server_config(); // for one connection
//! # Ok::<(), rustls_reload::StartError>(())
//! ```
#![forbid(unsafe_code)]

mod bundle;
mod client;
mod connections;
mod der;
mod difference;
mod events;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod handshake;
#[cfg(feature = "issue")]
pub mod issue;
mod listener;
mod load;
pub mod metrics;
mod paths;
pub mod pem;
pub mod publish;
mod reload;
mod resolver;
mod server;
mod socket;
mod source;
mod store;
mod sys;
mod thread;
mod trigger;
mod trust;
mod verifier;
mod watch;

pub use bundle::{
    Bundle, BundleError, CaRule, Curve, Fingerprint, Found, KeyEncoding, KeyType, Leaf, Material,
    OcspProblem, Purpose, Validity, ValidityState, Warning,
};
pub use client::{ClientSettings, ServerRoots};
pub use connections::{ConnectionInfo, Connections, Drain, Drained};
pub use difference::Difference;
pub use events::{Event, Swap, Trigger};
pub use generation::Generation;
pub use handshake::{HandshakeError, Pending, TlsStream};
pub use listener::{Incoming, TlsListener};
pub use load::LoadError;
pub use paths::{Paths, Role};
pub use reload::{Health, ReloadError, Reloaded, Reloader, ReloaderBuilder, StartError, Stats, Watcher};
pub use resolver::Resolver;
pub use server::{ClientAuth, ConfigError, ServerSettings};
pub use source::{FileKind, ReadError};
pub use store::Store;
pub use trust::{CrlExpiry, CrlFile, Trust};
pub use verifier::ClientVerifier;
pub use watch::{Backend, WatchFailure};

/// The example of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
