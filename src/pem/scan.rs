//! Lines to sections: pairs each BEGIN with its END and leaves nothing over.
//!
//! Knows nothing of base64 and DER.

use super::marker::{self, Line};
use super::{Error, Label, Problem};

/// One block as it stands in the text.
pub(super) struct Section<'a> {
    pub(super) label: Label,
    /// Counted from 1.
    pub(super) number: usize,
    /// The line of BEGIN, counted from 1.
    pub(super) line: usize,
    /// What stands between the two markers.
    pub(super) body: &'a [u8],
}

/// Every block of `text`, in order; none if it has no markers.
pub(super) fn sections(text: &[u8]) -> Result<Vec<Section<'_>>, Error> {
    let mut sections = Vec::new();
    let mut open: Option<Open<'_>> = None;
    for line in Lines::new(without_byte_order_mark(text)) {
        let number = sections.len().saturating_add(1);
        match (marker::classify(line.text), &open) {
            // Cut off within its last line: said as such, below or here.
            (Err(Problem::MalformedMarker(_)), Some(_)) if !line.is_terminated() => {}
            (Err(Problem::MalformedMarker(_)), None) if !line.is_terminated() => {
                return Err(Error::at(line.number, Problem::MarkerCut));
            }
            (Err(problem), _) => return Err(Error::at(line.number, problem)),
            (Ok(Line::Text), None) if !line.is_terminated() && marker::is_start_of_marker(line.text) => {
                return Err(Error::at(line.number, Problem::MarkerCut));
            }
            (Ok(Line::Text), Some(_)) => {}
            (Ok(Line::Text), None) if is_stray_base64(line.text) => {
                return Err(Error::at(line.number, Problem::StrayBase64));
            }
            (Ok(Line::Text), None) => {}
            (Ok(Line::Begin(label)), None) => {
                open = Some(Open { label, line: line.number, rest: line.rest });
            }
            (Ok(Line::Begin(_)), Some(cut)) => {
                let problem = Problem::BeginInside { block: number, begun: cut.line };
                return Err(Error::at(line.number, problem));
            }
            (Ok(Line::End(_)), None) => return Err(Error::at(line.number, Problem::EndWithoutBegin)),
            (Ok(Line::End(label)), Some(begun)) => {
                sections.push(begun.close(number, label, &line)?);
                open = None;
            }
        }
    }
    match open {
        None => Ok(sections),
        Some(cut) => {
            let problem = Problem::EndMissing {
                block: sections.len().saturating_add(1),
                label: Label::from_text(cut.label),
            };
            Err(Error::at(cut.line, problem))
        }
    }
}

/// A block whose END was not seen yet.
struct Open<'a> {
    label: &'a [u8],
    line: usize,
    /// The text behind the BEGIN line.
    rest: &'a [u8],
}

impl<'a> Open<'a> {
    fn close(&self, number: usize, end_label: &[u8], end: &NumberedLine<'a>) -> Result<Section<'a>, Error> {
        let label = Label::from_text(self.label);
        if end_label != self.label {
            let problem =
                Problem::LabelsDiffer { block: number, begin: label, end: Label::from_text(end_label) };
            return Err(Error::at(end.number, problem));
        }
        let length = self.rest.len().saturating_sub(end.from_here.len());
        Ok(Section { label, number, line: self.line, body: self.rest.get(..length).unwrap_or_default() })
    }
}

/// A body without its BEGIN line. DER of a certificate or key starts with `30 8…`, which is `MI` in base64;
/// shorter or other lines are taken for prose.
fn is_stray_base64(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.len() >= 60
        && line.starts_with(b"MI")
        && line.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte))
}

/// One line, without what ends it.
pub(super) struct NumberedLine<'a> {
    pub(super) number: usize,
    pub(super) text: &'a [u8],
    /// The whole text from the start of this line.
    from_here: &'a [u8],
    /// The whole text behind this line.
    rest: &'a [u8],
}

impl NumberedLine<'_> {
    fn is_terminated(&self) -> bool {
        self.text.len() < self.from_here.len()
    }
}

/// Lines that end with LF, CRLF or CR.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, number: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = NumberedLine<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let from_here = self.rest;
        let length =
            from_here.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(from_here.len());
        let (text, behind) = from_here.split_at_checked(length)?;
        self.rest = behind.strip_prefix(b"\r\n").or_else(|| behind.get(1..)).unwrap_or_default();
        self.number = self.number.saturating_add(1);
        Some(NumberedLine { number: self.number, text, from_here, rest: self.rest })
    }
}

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Where `needle` first stands in `text`.
pub(super) fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

pub(super) fn contains(text: &[u8], needle: &[u8]) -> bool {
    find(text, needle).is_some()
}
