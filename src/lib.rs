//! Keeps the TLS certificates, keys and trust of a running process fresh while the files on disk rotate.
#![forbid(unsafe_code)]

mod bundle;
mod der;
mod paths;
mod source;
mod sys;
mod thread;
mod watch;
pub mod pem;
mod trust;

pub use bundle::{
    Bundle, BundleError, CaRule, Curve, Fingerprint, Found, KeyEncoding, KeyType, Leaf, Material,
    OcspProblem, Purpose, Validity, ValidityState, Warning,
};
pub use paths::{Paths, Role};
pub use trust::Trust;
