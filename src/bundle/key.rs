//! What kind of key a certificate or a private key file holds, told from its algorithm identifier.
//!
//! rustls has one message for everything a provider cannot use; the names here are what ours are made of. What a
//! provider supports is not known here: it is asked.

use std::fmt;

use rustls::pki_types::PrivateKeyDer;

use crate::der::{self, Reader};

/// The kind of a key, with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyType {
    /// RSA (RFC 8017), with the size of its modulus.
    Rsa {
        /// The size of the modulus in bits.
        bits: u32,
    },
    /// RSA restricted to PSS (`id-RSASSA-PSS`, RFC 4055 §1.2); rustls cannot sign with it.
    RsaPss {
        /// The size of the modulus in bits.
        bits: u32,
    },
    /// ECDSA on a named curve (RFC 5480).
    Ecdsa(Curve),
    /// ECDSA on a curve that is written out instead of named, which RFC 5480 §2.1.1 forbids.
    EcdsaExplicit,
    /// Ed25519 (RFC 8410).
    Ed25519,
    /// Ed448 (RFC 8410).
    Ed448,
    /// ML-DSA (RFC 9881), with its parameter set: 44, 65 or 87.
    MlDsa {
        /// The number in the name of the parameter set.
        set: u32,
    },
    /// DSA.
    Dsa,
    /// X25519 or X448: key agreement only, cannot sign.
    KeyAgreement,
    /// None of these.
    Unknown,
}

impl KeyType {
    /// Of a DER `SubjectPublicKeyInfo` (RFC 5280 §4.1).
    pub(crate) fn of_spki(spki: &[u8]) -> Self {
        let Some(mut spki) = Reader::sequence(spki) else {
            return Self::Unknown;
        };
        let Some(algorithm) = spki.expect(der::SEQUENCE) else {
            return Self::Unknown;
        };
        let modulus = || {
            let (_unused_bits, key) = spki.expect(der::BIT_STRING)?.split_first()?;
            Reader::sequence(key)?.expect(der::INTEGER)
        };
        Self::of_algorithm(algorithm, modulus)
    }

    /// Of the content of an `AlgorithmIdentifier`; `modulus` is asked for when it names RSA.
    fn of_algorithm<'a>(algorithm: &'a [u8], modulus: impl FnOnce() -> Option<&'a [u8]>) -> Self {
        let mut algorithm = Reader::new(algorithm);
        match algorithm.expect(der::OID) {
            Some(oid::RSA) => Self::Rsa { bits: modulus().map_or(0, der::bits) },
            Some(oid::RSA_PSS) => Self::RsaPss { bits: modulus().map_or(0, der::bits) },
            Some(oid::EC) => Self::of_ec_parameters(&mut algorithm),
            Some(oid::ED25519) => Self::Ed25519,
            Some(oid::ED448) => Self::Ed448,
            Some(oid::DSA) => Self::Dsa,
            Some(oid::X25519 | oid::X448) => Self::KeyAgreement,
            Some([start @ .., set @ 17..=19]) if *start == *oid::ML_DSA => Self::MlDsa {
                set: match set {
                    17 => 44,
                    18 => 65,
                    _ => 87,
                },
            },
            _ => Self::Unknown,
        }
    }

    /// Of `ECParameters` (RFC 5480 §2.1.1): a name, or all of the curve.
    fn of_ec_parameters(parameters: &mut Reader<'_>) -> Self {
        match parameters.next().map(|element| (element.tag, element.content)) {
            Some((der::OID, curve)) => Self::Ecdsa(Curve::from_oid(curve)),
            Some((der::SEQUENCE, _)) => Self::EcdsaExplicit,
            _ => Self::Ecdsa(Curve::Unknown),
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa { bits } => write!(f, "RSA {bits}"),
            Self::RsaPss { bits } => write!(f, "RSASSA-PSS {bits}"),
            Self::Ecdsa(curve) => write!(f, "ECDSA {curve}"),
            Self::EcdsaExplicit => f.write_str("ECDSA with explicit EC parameters"),
            Self::Ed25519 => f.write_str("Ed25519"),
            Self::Ed448 => f.write_str("Ed448"),
            Self::MlDsa { set } => write!(f, "ML-DSA-{set}"),
            Self::Dsa => f.write_str("DSA"),
            Self::KeyAgreement => f.write_str("X25519 or X448"),
            Self::Unknown => f.write_str("unknown algorithm"),
        }
    }
}

/// A named elliptic curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Curve {
    /// secp224r1.
    P224,
    /// secp256r1, prime256v1.
    P256,
    /// secp384r1.
    P384,
    /// secp521r1.
    P521,
    /// secp256k1, of blockchains.
    Secp256k1,
    /// brainpoolP256r1 (RFC 5639).
    BrainpoolP256r1,
    /// brainpoolP384r1.
    BrainpoolP384r1,
    /// brainpoolP512r1.
    BrainpoolP512r1,
    /// Any other, or one that the key does not name.
    Unknown,
}

impl Curve {
    fn from_oid(curve: &[u8]) -> Self {
        match curve {
            oid::P224 => Self::P224,
            oid::P256 => Self::P256,
            oid::P384 => Self::P384,
            oid::P521 => Self::P521,
            oid::SECP256K1 => Self::Secp256k1,
            oid::BRAINPOOL_P256R1 => Self::BrainpoolP256r1,
            oid::BRAINPOOL_P384R1 => Self::BrainpoolP384r1,
            oid::BRAINPOOL_P512R1 => Self::BrainpoolP512r1,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P224 => "P-224",
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
            Self::Secp256k1 => "secp256k1",
            Self::BrainpoolP256r1 => "brainpoolP256r1",
            Self::BrainpoolP384r1 => "brainpoolP384r1",
            Self::BrainpoolP512r1 => "brainpoolP512r1",
            Self::Unknown => "unknown curve",
        })
    }
}

/// How a private key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyEncoding {
    /// PKCS#8 (RFC 5958), `PRIVATE KEY`.
    Pkcs8,
    /// PKCS#1 (RFC 8017), `RSA PRIVATE KEY`.
    Pkcs1,
    /// SEC1 (RFC 5915), `EC PRIVATE KEY`.
    Sec1,
}

impl KeyEncoding {
    pub(crate) fn named(key: &PrivateKeyDer<'_>) -> Option<Self> {
        match key {
            PrivateKeyDer::Pkcs8(_) => Some(Self::Pkcs8),
            PrivateKeyDer::Pkcs1(_) => Some(Self::Pkcs1),
            PrivateKeyDer::Sec1(_) => Some(Self::Sec1),
            _ => None,
        }
    }
}

impl fmt::Display for KeyEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pkcs8 => "PKCS#8",
            Self::Pkcs1 => "PKCS#1",
            Self::Sec1 => "SEC1",
        })
    }
}

/// What the DER of a private key says about itself, whatever it was labelled.
///
/// All three forms are a `SEQUENCE` that starts with an INTEGER, the version; the element behind it differs.
///
/// Nothing for RSA without a modulus: what is called a key of 0 bits is damaged, not small.
pub(crate) fn identify(key: &[u8]) -> Option<(KeyEncoding, KeyType)> {
    read(key)
        .filter(|(_, key_type)| !matches!(key_type, KeyType::Rsa { bits: 0 } | KeyType::RsaPss { bits: 0 }))
}

fn read(key: &[u8]) -> Option<(KeyEncoding, KeyType)> {
    let mut fields = Reader::sequence(key)?;
    fields.expect(der::INTEGER)?;
    let second = fields.next()?;
    match second.tag {
        der::SEQUENCE => {
            let modulus = || {
                let mut rsa = Reader::sequence(fields.expect(der::OCTET_STRING)?)?;
                rsa.expect(der::INTEGER)?;
                rsa.expect(der::INTEGER)
            };
            Some((KeyEncoding::Pkcs8, KeyType::of_algorithm(second.content, modulus)))
        }
        der::INTEGER => {
            let bits = der::bits(second.content);
            Some((KeyEncoding::Pkcs1, KeyType::Rsa { bits }))
        }
        der::OCTET_STRING => {
            let key_type = match fields.expect(der::CONTEXT_0) {
                Some(parameters) => KeyType::of_ec_parameters(&mut Reader::new(parameters)),
                None => KeyType::Ecdsa(Curve::Unknown),
            };
            Some((KeyEncoding::Sec1, key_type))
        }
        _ => None,
    }
}

/// Contents of OBJECT IDENTIFIERs.
mod oid {
    pub(super) const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
    pub(super) const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
    pub(super) const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    pub(super) const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1];
    pub(super) const X25519: &[u8] = &[0x2b, 0x65, 110];
    pub(super) const X448: &[u8] = &[0x2b, 0x65, 111];
    pub(super) const ED25519: &[u8] = &[0x2b, 0x65, 112];
    pub(super) const ED448: &[u8] = &[0x2b, 0x65, 113];
    /// 17, 18 or 19 follows.
    pub(super) const ML_DSA: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3];
    pub(super) const P224: &[u8] = &[0x2b, 0x81, 4, 0, 33];
    pub(super) const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    pub(super) const P384: &[u8] = &[0x2b, 0x81, 4, 0, 34];
    pub(super) const P521: &[u8] = &[0x2b, 0x81, 4, 0, 35];
    pub(super) const SECP256K1: &[u8] = &[0x2b, 0x81, 4, 0, 10];
    pub(super) const BRAINPOOL_P256R1: &[u8] = &[0x2b, 0x24, 3, 3, 2, 8, 1, 1, 7];
    pub(super) const BRAINPOOL_P384R1: &[u8] = &[0x2b, 0x24, 3, 3, 2, 8, 1, 1, 11];
    pub(super) const BRAINPOOL_P512R1: &[u8] = &[0x2b, 0x24, 3, 3, 2, 8, 1, 1, 13];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_told_by_the_element_behind_the_version() {
        let rsa_without_a_key = [&[0x30, 0x12, 2, 1, 0, 0x30, 0x0b, 6, 9][..], oid::RSA, &[4, 0]].concat();
        let curve = [&[0x30, 0x11, 2, 1, 1, 4, 0, 0xa0, 10, 6, 8][..], oid::P256].concat();
        let p256 = KeyType::Ecdsa(Curve::P256);
        for (der, expected) in [
            (rsa_without_a_key, None),
            (vec![0x30, 6, 2, 1, 0, 2, 1, 0], None),
            (vec![0x30, 7, 2, 1, 0, 2, 2, 1, 0], Some((KeyEncoding::Pkcs1, KeyType::Rsa { bits: 9 }))),
            (curve, Some((KeyEncoding::Sec1, p256))),
            (vec![0x30, 5, 2, 1, 1, 4, 0], Some((KeyEncoding::Sec1, KeyType::Ecdsa(Curve::Unknown)))),
            (
                vec![0x30, 9, 2, 1, 1, 4, 0, 0xa0, 2, 0x30, 0],
                Some((KeyEncoding::Sec1, KeyType::EcdsaExplicit)),
            ),
            (vec![0x30, 3, 2, 1, 0], None),
            (vec![], None),
        ] {
            assert_eq!(identify(&der), expected, "{der:02x?}");
        }
    }

    #[test]
    fn names_say_algorithm_and_size() {
        let algorithm = |oid: &[u8]| {
            let element = [&[6, u8::try_from(oid.len()).unwrap()], oid].concat();
            KeyType::of_algorithm(&element, || None).to_string()
        };
        assert_eq!(algorithm(oid::ED25519), "Ed25519");
        assert_eq!(algorithm(oid::X448), "X25519 or X448");
        assert_eq!(algorithm(&[oid::ML_DSA, &[18]].concat()), "ML-DSA-65");
        assert_eq!(algorithm(&[oid::ML_DSA, &[20]].concat()), "unknown algorithm");
        assert_eq!(algorithm(b""), "unknown algorithm");
    }
}
