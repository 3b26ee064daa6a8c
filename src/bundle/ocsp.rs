//! The outside of an OCSP response: enough to know that stapling it makes sense.
//!
//! Freshness, signature and whether it is for this leaf are not looked at.

use super::warning::OcspProblem;
use crate::der::{self, Reader};

/// Refuses what no client could use as a staple (RFC 6960 §4.2.1).
pub(super) fn check(response: &[u8]) -> Result<(), OcspProblem> {
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
    match is_basic && typed.is_empty() && fields.is_empty() && Reader::sequence(body).is_some() {
        true => Ok(()),
        false => Err(OcspProblem::NotBasic),
    }
}

/// 1.3.6.1.5.5.7.48.1.1
const ID_PKIX_OCSP_BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut element = vec![tag, u8::try_from(content.len()).unwrap()];
        element.extend_from_slice(content);
        element
    }

    fn response(status: u8, oid: &[u8]) -> Vec<u8> {
        let typed = [element(der::OID, oid), element(der::OCTET_STRING, &[0x30, 0])].concat();
        let bytes = element(der::CONTEXT_0, &element(der::SEQUENCE, &typed));
        element(der::SEQUENCE, &[element(der::ENUMERATED, &[status]), bytes].concat())
    }

    #[test]
    fn only_a_successful_basic_response_is_stapled() {
        let good = response(0, ID_PKIX_OCSP_BASIC);
        assert_eq!(check(&good), Ok(()));
        assert_eq!(check(b""), Err(OcspProblem::Empty));
        assert_eq!(check(b"-----BEGIN OCSP RESPONSE-----"), Err(OcspProblem::NotOcsp));
        assert_eq!(check(&response(3, ID_PKIX_OCSP_BASIC)), Err(OcspProblem::Status(3)));
        assert_eq!(check(&[0x30, 3, 10, 1, 6]), Err(OcspProblem::Status(6)));
        assert_eq!(check(&response(0, &[1, 2])), Err(OcspProblem::NotBasic));
        for cut in 0..good.len() {
            assert!(check(&good[..cut]).is_err(), "cut at {cut}");
        }
    }
}
