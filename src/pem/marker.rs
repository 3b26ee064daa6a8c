//! One line: is it a marker, text, or something that was meant as a marker and would be overlooked?

use super::scan::{BYTE_ORDER_MARK, contains, find};
use super::{Label, Marker, Problem};

/// What a line is. The labels are as they stand there.
pub(super) enum Line<'a> {
    Begin(&'a [u8]),
    End(&'a [u8]),
    Text,
}

/// Decides about one line, without its line ending.
///
/// A marker that is not alone on its line is an error: readers take such a line for a comment, or drop what
/// follows the marker, and a block is lost.
pub(super) fn classify(line: &[u8]) -> Result<Line<'_>, Problem> {
    // All bytes of a base64 line pass here: the cheap test comes first.
    if !line.iter().any(|byte| matches!(byte, b'-' | 0xe2)) {
        return Ok(Line::Text);
    }
    let begin = find(line, BEGIN).map(|at| (at, Marker::Begin));
    let end = find(line, END).map(|at| (at, Marker::End));
    match (begin, end) {
        (None, None) => damaged(line),
        _ if contains(line, br"\n") => Err(Problem::LineBreaksEscaped),
        (Some((begin, _)), Some((end, _))) if end < begin => Err(Problem::Glued),
        (Some(_), Some(_)) => Err(Problem::LineBreaksMissing),
        (Some((at, marker)), None) | (None, Some((at, marker))) => alone(line, at, marker),
    }
}

/// Whether a file that is being written may end so, before its next block.
pub(super) fn is_start_of_marker(line: &[u8]) -> bool {
    !line.is_empty() && BEGIN.starts_with(line)
}

/// A line with one kind of marker, which should start at 0 and end the line; blanks behind it are ignored.
fn alone(line: &[u8], at: usize, marker: Marker) -> Result<Line<'_>, Problem> {
    let (before, from_marker) = line.split_at_checked(at).unwrap_or((line, &[]));
    if before == BYTE_ORDER_MARK {
        return Err(Problem::ByteOrderMark(marker));
    }
    if !before.is_empty() {
        return Err(Problem::NotAtLineStart(marker));
    }
    let rest = from_marker.get(text(marker).len()..).unwrap_or_default().trim_ascii_end();
    let Some(hyphens) = find(rest, HYPHENS) else {
        return Err(Problem::MalformedMarker(marker));
    };
    let (label, closing) = rest.split_at_checked(hyphens).unwrap_or((rest, &[]));
    if !is_label(label) {
        return Err(Problem::MalformedMarker(marker));
    }
    match closing {
        HYPHENS if marker == Marker::Begin => Ok(Line::Begin(label)),
        HYPHENS => Ok(Line::End(label)),
        // A sixth hyphen.
        more if more.iter().all(|byte| *byte == b'-') => Err(Problem::MalformedMarker(marker)),
        _ => Err(Problem::TextAfterMarker(marker)),
    }
}

/// RFC 7468 §3: printable ASCII, no blank or hyphen at either end. An empty label names nothing.
fn is_label(label: &[u8]) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_graphic);
    edge(label.first()) && edge(label.last()) && label.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// A line without a marker: text, unless it is a marker with too few hyphens, other dashes, a blank too many or
/// in small letters. Both markers of a block may be damaged alike, and then nothing else would show it.
fn damaged(line: &[u8]) -> Result<Line<'_>, Problem> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
    let behind_dashes = trim_start_dashes(line);
    let words = behind_dashes.trim_ascii_start();
    let Some((marker, rest)) = keyword(words) else {
        return Ok(Line::Text);
    };
    let label = trim_end_dashes(rest);
    let has_leading = behind_dashes.len() < line.len();
    let has_trailing = label.len() < rest.len();
    let is_upper = words.starts_with(b"BEGIN") || words.starts_with(b"END");
    // All that was behind the word is lost.
    let is_bare = label.is_empty() && line.starts_with(HYPHENS);
    let is_close = has_leading && words.len() == behind_dashes.len() && has_trailing && is_upper;
    let names_something = Label::from_text(&label.trim_ascii().to_ascii_uppercase()) != Label::Other;
    if is_bare || is_close || (names_something && (has_leading || has_trailing) && (is_upper || has_trailing))
    {
        return Err(Problem::MalformedMarker(marker));
    }
    Ok(Line::Text)
}

fn keyword(words: &[u8]) -> Option<(Marker, &[u8])> {
    [(Marker::Begin, &b"BEGIN"[..]), (Marker::End, b"END")].into_iter().find_map(|(marker, keyword)| {
        let (start, rest) = words.split_at_checked(keyword.len())?;
        start.eq_ignore_ascii_case(keyword).then_some((marker, rest))
    })
}

fn trim_start_dashes(mut line: &[u8]) -> &[u8] {
    while let Some(rest) = DASHES.iter().find_map(|dash| line.strip_prefix(*dash)) {
        line = rest;
    }
    line
}

fn trim_end_dashes(mut line: &[u8]) -> &[u8] {
    while let Some(rest) = DASHES.iter().find_map(|dash| line.strip_suffix(*dash)) {
        line = rest;
    }
    line
}

fn text(marker: Marker) -> &'static [u8] {
    match marker {
        Marker::Begin => BEGIN,
        Marker::End => END,
    }
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const HYPHENS: &[u8] = b"-----";

/// The hyphen, and what word processors make of several: U+2010 to U+2015, U+2212.
const DASHES: [&[u8]; 8] = [
    b"-",
    "\u{2010}".as_bytes(),
    "\u{2011}".as_bytes(),
    "\u{2012}".as_bytes(),
    "\u{2013}".as_bytes(),
    "\u{2014}".as_bytes(),
    "\u{2015}".as_bytes(),
    "\u{2212}".as_bytes(),
];
