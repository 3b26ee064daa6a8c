//! Whether an OCSP response is worth stapling: of the basic type, about this leaf, good, and fresh (RFC 6960 §4.2).
//!
//! The signature is not looked at, that is for the peer. Courtesy all of it: without a staple peers do what they do
//! anyway.

use rustls::pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use super::input::parse_certificate;
use super::warning::OcspProblem;
use crate::der::{self, Reader};

/// A response that may be stapled until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fresh {
    /// In seconds since 1970.
    pub(super) next_update: i64,
}

/// Refuses what is no use as a staple for the first certificate of `chain`.
pub(super) fn check(
    response: &[u8],
    chain: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<Fresh, OcspProblem> {
    let basic = basic_response(response)?;
    let answers = answers(basic).ok_or(OcspProblem::Damaged)?;
    let certificates: Vec<_> = chain.iter().filter_map(parse_certificate).collect();
    let about_leaf = || answers.iter().filter(|answer| answer.is_about_first_of(&certificates));
    // Whichever a peer takes, one that says revoked is not to be hidden behind another.
    if let Some(since) = about_leaf().find_map(|answer| answer.revoked_since()) {
        return Err(OcspProblem::Revoked { since });
    }
    let answer = about_leaf().next().ok_or(OcspProblem::OtherCertificate)?;
    if answer.status != Status::Good {
        return Err(OcspProblem::Unknown);
    }
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let this_update = answer.this_update;
    if this_update > now {
        return Err(OcspProblem::NotYetValid { this_update });
    }
    match answer.next_update {
        Some(next_update) if next_update >= now => Ok(Fresh { next_update }),
        Some(next_update) => Err(OcspProblem::Stale { next_update }),
        None => Err(OcspProblem::NoNextUpdate),
    }
}

/// The DER of the `BasicOCSPResponse` within a successful response.
fn basic_response(response: &[u8]) -> Result<&[u8], OcspProblem> {
    if response.is_empty() {
        return Err(OcspProblem::Empty);
    }
    let mut fields = Reader::sequence(response).ok_or(OcspProblem::NotOcsp)?;
    match fields.expect(der::ENUMERATED) {
        Some([0]) => {}
        Some([status]) => return Err(OcspProblem::Status(*status)),
        _ => return Err(OcspProblem::NotOcsp),
    }
    let bytes = fields.expect(der::CONTEXT_0).ok_or(OcspProblem::NotOcsp)?;
    let mut typed = Reader::sequence(bytes).ok_or(OcspProblem::NotOcsp)?;
    let is_basic = typed.expect(der::OID) == Some(ID_PKIX_OCSP_BASIC);
    let body = typed.expect(der::OCTET_STRING).ok_or(OcspProblem::NotOcsp)?;
    match is_basic && typed.is_empty() && fields.is_empty() {
        true => Ok(body),
        false => Err(OcspProblem::NotBasic),
    }
}

/// Every `SingleResponse`; `None` where the DER is not what RFC 6960 §4.2.1 says.
fn answers(basic: &[u8]) -> Option<Vec<Answer<'_>>> {
    let mut basic = Reader::sequence(basic)?;
    let mut data = Reader::new(basic.expect(der::SEQUENCE)?);
    basic.expect(der::SEQUENCE)?;
    basic.expect(der::BIT_STRING)?;
    // The version, if it is written out.
    data.expect(der::CONTEXT_0);
    data.expect(BY_NAME).or_else(|| data.expect(BY_KEY))?;
    data.expect(GENERALIZED_TIME)?;
    let mut responses = Reader::new(data.expect(der::SEQUENCE)?);
    let mut answers = Vec::new();
    while !responses.is_empty() {
        answers.push(Answer::read(responses.expect(der::SEQUENCE)?)?);
    }
    Some(answers)
}

/// One `SingleResponse`.
struct Answer<'a> {
    id: Id<'a>,
    status: Status,
    this_update: i64,
    next_update: Option<i64>,
}

/// A `CertID`.
struct Id<'a> {
    hash: &'a [u8],
    issuer_name: &'a [u8],
    issuer_key: &'a [u8],
    serial: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Good,
    /// In seconds since 1970.
    Revoked(i64),
    Unknown,
}

impl<'a> Answer<'a> {
    fn read(content: &'a [u8]) -> Option<Self> {
        let mut fields = Reader::new(content);
        let mut id = Reader::new(fields.expect(der::SEQUENCE)?);
        let id = Id {
            hash: Reader::new(id.expect(der::SEQUENCE)?).expect(der::OID)?,
            issuer_name: id.expect(der::OCTET_STRING)?,
            issuer_key: id.expect(der::OCTET_STRING)?,
            serial: id.expect(der::INTEGER)?,
        };
        let status = fields.next()?;
        let status = match status.tag {
            GOOD => Status::Good,
            REVOKED => Status::Revoked(time(Reader::new(status.content).expect(GENERALIZED_TIME)?)?),
            UNKNOWN => Status::Unknown,
            _ => return None,
        };
        let this_update = time(fields.expect(GENERALIZED_TIME)?)?;
        let next_update = match fields.expect(der::CONTEXT_0) {
            Some(content) => Some(time(Reader::new(content).expect(GENERALIZED_TIME)?)?),
            None => None,
        };
        Some(Self { id, status, this_update, next_update })
    }

    /// By serial number and, where the hash is SHA-256, by the issuer. There is no SHA-1 here, which most
    /// responders still use: then a certificate of another issuer with the same serial number is taken for ours.
    fn is_about_first_of(&self, certificates: &[X509Certificate<'_>]) -> bool {
        let Some((leaf, others)) = certificates.split_first() else { return false };
        let Id { hash, issuer_name, issuer_key, serial } = self.id;
        if significant(serial) != significant(leaf.raw_serial()) {
            return false;
        }
        if hash != ID_SHA256 {
            return true;
        }
        let is = |hash: &[u8], bytes: &[u8]| hash == Sha256::digest(bytes).as_slice();
        let issuer = others.iter().find(|other| other.subject().as_raw() == leaf.issuer().as_raw());
        is(issuer_name, leaf.issuer().as_raw())
            && issuer.is_none_or(|issuer| is(issuer_key, &issuer.public_key().subject_public_key.data))
    }

    fn revoked_since(&self) -> Option<i64> {
        match self.status {
            Status::Revoked(since) => Some(since),
            Status::Good | Status::Unknown => None,
        }
    }
}

/// An INTEGER's octets without the zeros in front, which some write where DER has none.
fn significant(integer: &[u8]) -> &[u8] {
    let zeros = integer.iter().take_while(|octet| **octet == 0).count();
    integer.get(zeros..).unwrap_or_default()
}

/// The content of a GeneralizedTime, in seconds since 1970.
fn time(content: &[u8]) -> Option<i64> {
    let length = u8::try_from(content.len()).ok().filter(|length| *length < 0x80)?;
    let der = [&[GENERALIZED_TIME, length], content].concat();
    let (_, time) = ASN1Time::from_der(&der).ok()?;
    Some(time.timestamp())
}

const GENERALIZED_TIME: u8 = 0x18;

/// `ResponderID`: `[1]` and `[2]`, explicit.
const BY_NAME: u8 = 0xa1;
const BY_KEY: u8 = 0xa2;

/// `CertStatus`: `[0]`, `[1]` and `[2]`, implicit.
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;
const UNKNOWN: u8 = 0x82;

/// 1.3.6.1.5.5.7.48.1.1
const ID_PKIX_OCSP_BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];

/// 2.16.840.1.101.3.4.2.1
const ID_SHA256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bundle::made::Made;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82][..], &length, content].concat()
    }

    fn sequence(content: &[Vec<u8>]) -> Vec<u8> {
        element(der::SEQUENCE, &content.concat())
    }

    fn generalized(text: &str) -> Vec<u8> {
        [&[GENERALIZED_TIME, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    }

    /// What a responder says of one certificate.
    #[derive(Clone)]
    struct Single {
        hash: &'static [u8],
        issuer_name: Vec<u8>,
        issuer_key: Vec<u8>,
        serial: Vec<u8>,
        status: Vec<u8>,
        updates: (&'static str, Option<&'static str>),
    }

    impl Single {
        fn good(leaf: &Made, issuer: &Made) -> Self {
            let (leaf, issuer) = (leaf.der.clone().into(), issuer.der.clone().into());
            let (leaf, issuer) = (parse_certificate(&leaf).unwrap(), parse_certificate(&issuer).unwrap());
            Self {
                hash: ID_SHA256,
                issuer_name: Sha256::digest(leaf.issuer().as_raw()).to_vec(),
                issuer_key: Sha256::digest(&issuer.public_key().subject_public_key.data).to_vec(),
                serial: leaf.raw_serial().to_vec(),
                status: vec![GOOD, 0],
                updates: ("20241231000000Z", Some("20250102000000Z")),
            }
        }

        fn der(&self) -> Vec<u8> {
            let id = sequence(&[
                sequence(&[element(der::OID, self.hash)]),
                element(der::OCTET_STRING, &self.issuer_name),
                element(der::OCTET_STRING, &self.issuer_key),
                element(der::INTEGER, &self.serial),
            ]);
            let (this_update, next_update) = self.updates;
            let next_update = next_update.map(|time| element(der::CONTEXT_0, &generalized(time)));
            sequence(&[id, self.status.clone(), generalized(this_update), next_update.unwrap_or_default()])
        }
    }

    fn basic(singles: &[Single]) -> Vec<u8> {
        let key_hash = element(BY_KEY, &element(der::OCTET_STRING, &[7; 20]));
        let singles: Vec<_> = singles.iter().map(Single::der).collect();
        let data = sequence(&[key_hash, generalized("20241231000000Z"), sequence(&singles)]);
        sequence(&[data, sequence(&[]), element(der::BIT_STRING, &[0, 1])])
    }

    fn response(status: u8, oid: &[u8], basic: &[u8]) -> Vec<u8> {
        let typed = sequence(&[element(der::OID, oid), element(der::OCTET_STRING, basic)]);
        sequence(&[element(der::ENUMERATED, &[status]), element(der::CONTEXT_0, &typed)])
    }

    /// A leaf with its issuer, and what is said of it.
    struct Stage {
        leaf: Made,
        root: Made,
    }

    impl Stage {
        fn new() -> Self {
            let root = Made::root("root");
            Self { leaf: Made::leaf(&root), root }
        }

        fn chain(&self) -> Vec<CertificateDer<'static>> {
            vec![self.leaf.der.clone().into(), self.root.der.clone().into()]
        }

        fn judge(&self, singles: &[Single]) -> Result<i64, OcspProblem> {
            let response = response(0, ID_PKIX_OCSP_BASIC, &basic(singles));
            check(&response, &self.chain(), NOW).map(|fresh| fresh.next_update)
        }
    }

    #[test]
    fn only_a_good_and_fresh_answer_for_the_leaf_is_stapled() {
        let stage = Stage::new();
        let good = Single::good(&stage.leaf, &stage.root);
        let other = Single { serial: vec![1, 2, 3], ..good.clone() };
        let until = |from, until| Single { updates: (from, until), ..good.clone() };
        let status = |status: &[u8]| Single { status: status.to_vec(), ..good.clone() };
        let revoked = status(&[&[REVOKED, 17][..], &generalized("20241001000000Z")].concat());
        let sha_1 = Single { hash: &[0x2b, 14, 3, 2, 26], issuer_name: vec![1; 20], ..good.clone() };
        let zero_in_front = Single { serial: [&[0][..], &good.serial].concat(), ..good.clone() };
        let since = 1_727_740_800;
        for (what, singles, expected) in [
            ("good", vec![good.clone()], Ok(1_735_776_000)),
            ("the second of two", vec![other.clone(), good.clone()], Ok(1_735_776_000)),
            ("by SHA-1", vec![sha_1], Ok(1_735_776_000)),
            ("written with a zero", vec![zero_in_front], Ok(1_735_776_000)),
            ("this second", vec![until("20250101000000Z", Some("20250101000000Z"))], Ok(1_735_689_600)),
            ("none", vec![], Err(OcspProblem::OtherCertificate)),
            ("another", vec![other], Err(OcspProblem::OtherCertificate)),
            (
                "another issuer's name",
                vec![Single { issuer_name: vec![0; 32], ..good.clone() }],
                Err(OcspProblem::OtherCertificate),
            ),
            (
                "another issuer's key",
                vec![Single { issuer_key: vec![0; 32], ..good.clone() }],
                Err(OcspProblem::OtherCertificate),
            ),
            ("revoked", vec![revoked.clone()], Err(OcspProblem::Revoked { since })),
            ("good and revoked", vec![good.clone(), revoked], Err(OcspProblem::Revoked { since })),
            ("unknown", vec![status(&[UNKNOWN, 0])], Err(OcspProblem::Unknown)),
            ("no status", vec![status(&[0x83, 0])], Err(OcspProblem::Damaged)),
            (
                "of the future",
                vec![until("20250101000001Z", Some("20250201000000Z"))],
                Err(OcspProblem::NotYetValid { this_update: 1_735_689_601 }),
            ),
            (
                "stale",
                vec![until("20240101000000Z", Some("20241231235959Z"))],
                Err(OcspProblem::Stale { next_update: 1_735_689_599 }),
            ),
            ("without an end", vec![until("20240101000000Z", None)], Err(OcspProblem::NoNextUpdate)),
            ("no time", vec![until("2024", None)], Err(OcspProblem::Damaged)),
        ] {
            assert_eq!(stage.judge(&singles), expected, "{what}");
        }
    }

    #[test]
    fn what_is_no_basic_response_is_named() {
        let stage = Stage::new();
        let good = basic(&[Single::good(&stage.leaf, &stage.root)]);
        let problem = |response: &[u8]| check(response, &stage.chain(), NOW).unwrap_err();
        assert_eq!(problem(b""), OcspProblem::Empty);
        assert_eq!(problem(b"-----BEGIN OCSP RESPONSE-----"), OcspProblem::NotOcsp);
        assert_eq!(problem(&response(3, ID_PKIX_OCSP_BASIC, &good)), OcspProblem::Status(3));
        assert_eq!(problem(&[0x30, 3, 10, 1, 6]), OcspProblem::Status(6));
        assert_eq!(problem(&response(0, &[1, 2], &good)), OcspProblem::NotBasic);
        assert_eq!(problem(&response(0, ID_PKIX_OCSP_BASIC, &[0x30, 0])), OcspProblem::Damaged);
    }

    #[test]
    fn a_cut_or_damaged_response_is_never_stapled_or_a_panic() {
        let stage = Stage::new();
        let basic = basic(&[Single::good(&stage.leaf, &stage.root)]);
        let whole = response(0, ID_PKIX_OCSP_BASIC, &basic);
        assert!(check(&whole, &stage.chain(), NOW).is_ok());
        for cut in 0..whole.len() {
            assert!(check(&whole[..cut], &stage.chain(), NOW).is_err(), "cut at {cut}");
        }
        // The outside may be whole and the inside cut.
        for cut in 0..basic.len() {
            let response = response(0, ID_PKIX_OCSP_BASIC, &basic[..cut]);
            assert_eq!(check(&response, &stage.chain(), NOW), Err(OcspProblem::Damaged), "cut at {cut}");
        }
        for at in 0..whole.len() {
            for octet in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = octet;
                // Whatever it says: no panic.
                check(&damaged, &stage.chain(), NOW).ok();
            }
        }
    }

    /// 2025-01-01.
    const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_735_689_600));
}
