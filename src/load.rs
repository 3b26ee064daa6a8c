//! One load: what was read becomes a bundle, or the reason why not. The same at start and ever after.

use std::fmt;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;

use crate::bundle::{Bundle, BundleError, Date, Material, Validity, ValidityState};
use crate::paths::{Paths, Role};
use crate::server::ConfigError;
use crate::source::{self, OsDisk, ReadError, Snapshot};

impl Bundle {
    /// Reads and validates the files of `paths` as one generation, once, on the calling thread.
    ///
    /// # Errors
    ///
    /// [`LoadError::Read`] if a file cannot be read, [`LoadError::Content`] if what it holds cannot be served.
    pub fn load(paths: &Paths, provider: &CryptoProvider, now: UnixTime) -> Result<Self, LoadError> {
        let snapshot = source::read(&OsDisk, paths).map_err(|(_, error)| error)?;
        from_snapshot(&snapshot, paths, provider, now)
    }
}

/// Validates what was read.
pub(crate) fn from_snapshot(
    snapshot: &Snapshot,
    paths: &Paths,
    provider: &CryptoProvider,
    now: UnixTime,
) -> Result<Bundle, LoadError> {
    let bytes = |role| snapshot.bytes(role).unwrap_or_default();
    let mut material = if snapshot.same_file(Role::Cert, Role::Key) {
        Material::combined(bytes(Role::Cert))
    } else {
        Material::new(bytes(Role::Cert), bytes(Role::Key))
    };
    if let Some(ca) = snapshot.bytes(Role::Ca) {
        material = material.with_ca(ca);
    }
    for (path, crl) in snapshot.all(Role::Crl) {
        material = material.with_crl_at(path, crl);
    }
    if let Some(ocsp) = snapshot.bytes(Role::Ocsp) {
        material = material.with_ocsp(ocsp);
    }
    let ocsp_is_missing = paths.ocsp().is_some() && snapshot.bytes(Role::Ocsp).is_none();
    Bundle::from_pem(&material, provider, now)
        .map(|bundle| if ocsp_is_missing { bundle.without_staple() } else { bundle })
        .map_err(|error| LoadError::Content { paths: Box::new(paths.clone()), error })
}

/// An expired or not yet valid leaf does not replace a valid one; with nothing better it is served.
pub(crate) fn refuse_worse(
    candidate: &Bundle,
    live: Option<&Bundle>,
    paths: &Paths,
    now: UnixTime,
) -> Result<(), LoadError> {
    let state = candidate.leaf().validity().at(now);
    let live_is_valid = live.is_some_and(|live| live.leaf().validity().at(now) == ValidityState::Valid);
    if state == ValidityState::Valid || !live_is_valid {
        return Ok(());
    }
    let validity = candidate.leaf().validity();
    Err(LoadError::Worse { path: paths.cert().to_owned(), state, validity })
}

/// Why a state of the disk is not served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// A file cannot be read, or they cannot be read as one generation.
    Read(ReadError),
    /// What was read cannot be served.
    #[non_exhaustive]
    Content {
        /// The files that were read.
        paths: Box<Paths>,
        /// What is wrong.
        error: BundleError,
    },
    /// The leaf is expired or not yet valid, and the one that is served is valid.
    #[non_exhaustive]
    Worse {
        /// The certificate file.
        path: std::path::PathBuf,
        /// What the leaf is.
        state: ValidityState,
        /// When it is valid.
        validity: Validity,
    },
    /// A hook of the program, its clock, or a parser panicked. What was served is served on.
    Panicked,
    /// No TLS configuration can be made from it.
    #[non_exhaustive]
    Config {
        /// The files that were read.
        paths: Box<Paths>,
        /// What is wrong.
        error: ConfigError,
    },
}

impl LoadError {
    /// A short stable word for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read(error) => error.reason(),
            Self::Content { error, .. } => error.reason(),
            Self::Worse { .. } => "not_valid_now",
            Self::Panicked => "panicked",
            Self::Config { .. } => "config",
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Content { paths, error } => error.display_with(paths).fmt(f),
            Self::Worse { path, state, validity } => {
                write!(f, "{}: the certificate ", path.display())?;
                match state {
                    ValidityState::NotYetValid => {
                        write!(f, "is valid only from {}", Date(validity.not_before))?
                    }
                    _ => write!(f, "expired at {}", Date(validity.not_after))?,
                }
                f.write_str(", while the one that is served is valid now: ")?;
                f.write_str("is it an old file, or is the clock wrong?")
            }
            Self::Panicked => {
                f.write_str("a panic while the files were judged: is it in a hook of the program?")
            }
            Self::Config { paths, error } => {
                let path = paths.ca().unwrap_or_else(|| paths.cert());
                write!(f, "{}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Their text is part of this one's.
            Self::Read(_) | Self::Content { .. } | Self::Worse { .. } | Self::Panicked => None,
            Self::Config { error, .. } => std::error::Error::source(error),
        }
    }
}

impl From<ReadError> for LoadError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}
