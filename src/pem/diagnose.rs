//! What a file is instead of PEM. Guesses, good enough to choose the advice.

use super::scan::{BYTE_ORDER_MARK, contains, without_byte_order_mark};
use super::{DerContent, Error, Problem};
use crate::der::{self, Reader};

/// Refuses what is not text at all.
///
/// PEM has no NUL bytes. One at the very end is accepted: C programs write their strings so.
pub(super) fn binary(text: &[u8]) -> Result<(), Error> {
    if is_utf16(text) {
        return Err(Error::whole(Problem::Utf16));
    }
    if is_der(text) {
        return Err(Error::whole(Problem::Der(der_content(text))));
    }
    let body = text.strip_suffix(b"\0").unwrap_or(text);
    match body.iter().position(|byte| *byte == 0) {
        None if body.is_empty() && !text.is_empty() => Err(Error::whole(Problem::OnlyNul)),
        None => Ok(()),
        Some(_) if body.iter().all(|byte| *byte == 0) => Err(Error::whole(Problem::OnlyNul)),
        Some(at) => {
            let before = body.get(..at).unwrap_or_default();
            let lines = super::scan::Lines::new(before).count();
            let starts_line = matches!(before.last(), None | Some(b'\n' | b'\r'));
            Err(Error::at(lines.saturating_add(usize::from(starts_line)), Problem::Nul))
        }
    }
}

/// Why `text` holds no block.
pub(super) fn nothing(text: &[u8]) -> Error {
    let text = without_byte_order_mark(text).trim_ascii();
    Error::whole(match text {
        [] | [0] => Problem::Empty,
        html if starts_with_ignoring_case(html, b"<!doctype")
            || starts_with_ignoring_case(html, b"<html") =>
        {
            Problem::Html
        }
        // base64 of "-----BEGIN "
        encoded if encoded.starts_with(b"LS0tLS1CRUdJTi") => Problem::Base64OfPem,
        _ => Problem::NoBlock,
    })
}

fn is_utf16(text: &[u8]) -> bool {
    text.starts_with(b"\xff\xfe")
        || text.starts_with(b"\xfe\xff")
        || contains(text.get(..64).unwrap_or(text), b"-\0-\0-")
}

/// A `SEQUENCE` whose length fits into the file, or is written in long form. Text that starts with `0` does not
/// go on with such an octet.
fn is_der(text: &[u8]) -> bool {
    matches!(text, [der::SEQUENCE, 0x81..=0x84, ..]) && !text.starts_with(BYTE_ORDER_MARK)
        || Reader::sequence(text).is_some()
}

fn der_content(text: &[u8]) -> DerContent {
    let mut file = Reader::new(text);
    let Some(content) = file.expect(der::SEQUENCE) else {
        return DerContent::Unknown;
    };
    let mut outer = Reader::new(content);
    match outer.next().map(|first| (first.tag, first.content)) {
        Some((der::SEQUENCE, _)) => DerContent::Certificate,
        Some((der::INTEGER, [3])) => DerContent::Pkcs12,
        Some((der::INTEGER, _)) => DerContent::PrivateKey,
        Some((der::OID, _)) => DerContent::Pkcs7,
        _ => DerContent::Unknown,
    }
}

fn starts_with_ignoring_case(text: &[u8], start: &[u8]) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}
