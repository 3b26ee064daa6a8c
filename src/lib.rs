//! Keeps the TLS certificates, keys and trust of a running process fresh while the files on disk rotate.
//!
//! For blocking, thread-based programs: no async runtime.
#![forbid(unsafe_code)]

mod bundle;
mod client;
mod der;
mod difference;
mod events;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod generation;
#[cfg(feature = "issue")]
pub mod issue;
mod load;
pub mod metrics;
mod paths;
pub mod pem;
pub mod publish;
mod reload;
mod resolver;
mod server;
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
pub use difference::Difference;
pub use events::{Event, Swap, Trigger};
pub use generation::Generation;
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
