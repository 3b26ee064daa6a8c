//! Key pairs: made or read, shared by what is issued for them, wiped when the last user is gone.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::{Zeroize as _, Zeroizing};

use super::IssueError;

/// A private key and its public half. Cloning shares it.
///
/// `Debug` shows the algorithm and nothing else. What we own of it is wiped when the last clone is dropped;
/// copies inside the crypto backend are its care.
#[derive(Clone)]
pub struct Key {
    pair: Arc<Wiped>,
}

impl Key {
    /// Makes a new key.
    ///
    /// # Errors
    ///
    /// [`IssueError::Generate`] if the crypto backend cannot: ring makes no RSA keys, aws-lc-rs does.
    pub fn generate(key_type: KeyType) -> Result<Self, IssueError> {
        let failed = |_| IssueError::Generate { key_type };
        let made = Self::of(rcgen::KeyPair::generate_for(key_type.algorithm()).map_err(failed)?);
        match ed25519_v1(made.pair().serialized_der()) {
            Some(der) => Ok(Self::of(rcgen::KeyPair::try_from(der.as_slice()).map_err(failed)?)),
            None => Ok(made),
        }
    }

    /// Takes a key from PEM: one `PRIVATE KEY` block (PKCS#8), not encrypted.
    ///
    /// This is also the way to an RSA key where the backend makes none (`openssl genpkey -algorithm RSA`).
    ///
    /// # Errors
    ///
    /// [`IssueError::Key`], without a word about the text.
    pub fn from_pem(pem: &str) -> Result<Self, IssueError> {
        // The backend may take SEC1 and PKCS#1 too, but would write them under the label of PKCS#8.
        if !pem.contains("-----BEGIN PRIVATE KEY-----") {
            return Err(IssueError::Key);
        }
        rcgen::KeyPair::from_pem(pem).map(Self::of).map_err(|_| IssueError::Key)
    }

    /// The key as PEM (PKCS#8), in memory that is wiped on drop.
    pub fn to_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.pair().serialize_pem())
    }

    /// The key as DER (PKCS#8). The copy is the caller's to protect.
    pub fn to_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.pair().serialize_der()).into()
    }

    pub(super) fn pair(&self) -> &rcgen::KeyPair {
        &self.pair.0
    }

    fn of(pair: rcgen::KeyPair) -> Self {
        Self { pair: Arc::new(Wiped(pair)) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.pair().algorithm())
    }
}

/// What kind of key to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyType {
    /// ECDSA on the curve P-256, signed with SHA-256. The default: small, fast, supported everywhere.
    #[default]
    EcdsaP256,
    /// ECDSA on the curve P-384, signed with SHA-384.
    EcdsaP384,
    /// Ed25519. Browsers do not accept it.
    Ed25519,
    /// RSA of 2048 bits, signed with SHA-256. Only with the feature `aws-lc-rs`: ring makes no RSA keys.
    Rsa2048,
}

impl KeyType {
    fn algorithm(self) -> &'static rcgen::SignatureAlgorithm {
        match self {
            Self::EcdsaP256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            Self::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            Self::Ed25519 => &rcgen::PKCS_ED25519,
            Self::Rsa2048 => &rcgen::PKCS_RSA_SHA256,
        }
    }
}

/// A key given by the caller, or the wish for a new one.
#[derive(Clone, Debug)]
pub(super) enum KeyChoice {
    New(KeyType),
    Given(Key),
}

impl KeyChoice {
    pub(super) fn take(self) -> Result<Key, IssueError> {
        match self {
            Self::New(key_type) => Key::generate(key_type),
            Self::Given(key) => Ok(key),
        }
    }
}

/// An Ed25519 key as PKCS#8 version 1, if it is one in version 2 (RFC 5958), as backends make them: OpenSSL
/// 3.0 cannot read that.
fn ed25519_v1(der: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    /// Version 2; the algorithm; a string within a string of 32 bytes.
    const V2: &[u8] = b"\x02\x01\x01\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    /// The whole, then the same in version 1.
    const V1: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    let (_sequence, inner) = der.split_at_checked(2)?;
    let (seed, _public_key) = inner.strip_prefix(V2)?.split_at_checked(32)?;
    Some(Zeroizing::new([V1, seed].concat()))
}

struct Wiped(rcgen::KeyPair);

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
