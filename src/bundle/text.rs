//! Text from certificates, made safe for logs.
//!
//! A certificate is written by others: a line break or a terminal escape in a name must not forge a log line, and
//! a name of a megabyte must not fill it.

use std::fmt::Write as _;

use x509_parser::asn1_rs::{Any, BmpString, Tag};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::x509::X509Name;

/// A distinguished name in the style of RFC 4514, in the order it is written.
pub(crate) fn name(name: &X509Name<'_>) -> String {
    let mut text = Limited::default();
    for (at, rdn) in name.iter_rdn().enumerate() {
        for (of_rdn, attribute) in rdn.iter().enumerate() {
            text.push_str(match (at, of_rdn) {
                (0, 0) => "",
                (_, 0) => ", ",
                _ => "+",
            });
            match oid2abbrev(attribute.attr_type(), oid_registry()) {
                Ok(abbreviation) => text.push_str(abbreviation),
                Err(_) => text.push_str(&attribute.attr_type().to_id_string()),
            }
            text.push_str("=");
            value(&mut text, attribute.attr_value());
            if text.is_full() {
                return text.finish();
            }
        }
    }
    text.finish()
}

/// A DNS name in lower case. One that is no DNS name is escaped, and so matches none.
pub(crate) fn dns_name(name: &str) -> String {
    let mut text = Limited::default();
    for character in name.chars() {
        match character {
            '!'..='~' if character != '\\' => text.push(character.to_ascii_lowercase()),
            _ => text.push_escaped(character),
        }
        if text.is_full() {
            break;
        }
    }
    text.finish()
}

/// A serial number in lower-case hexadecimal, without leading zeros.
pub(crate) fn serial(octets: &[u8]) -> String {
    let mut significant = octets;
    while let [0, rest @ ..] = significant
        && !rest.is_empty()
    {
        significant = rest;
    }
    hex(significant)
}

fn hex(octets: &[u8]) -> String {
    let mut text = Limited::default();
    for octet in octets {
        text.push_str(&format!("{octet:02x}"));
        if text.is_full() {
            break;
        }
    }
    text.finish()
}

fn value(text: &mut Limited, value: &Any<'_>) {
    let decoded = match value.tag() {
        Tag::BmpString => BmpString::try_from(value.clone()).ok().map(|bmp| bmp.string()),
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::VisibleString | Tag::NumericString => {
            std::str::from_utf8(value.data).ok().map(str::to_owned)
        }
        // T.61 has no agreed meaning outside ASCII; lossy is what others show.
        Tag::T61String => Some(String::from_utf8_lossy(value.data).into_owned()),
        _ => None,
    };
    let Some(decoded) = decoded else {
        text.push_str("#");
        text.push_str(&hex(value.data));
        return;
    };
    for character in decoded.chars() {
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => {
                text.push('\\');
                text.push(character);
            }
            _ if is_harmless(character) => text.push(character),
            _ => text.push_escaped(character),
        }
        if text.is_full() {
            return;
        }
    }
}

/// Neither control nor format character, nor anything that reorders or hides text.
fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff0}'..='\u{ffff}'
                | '\u{e0000}'..='\u{10ffff}'
        )
}

/// Text that stops growing.
#[derive(Default)]
struct Limited(String);

impl Limited {
    fn push(&mut self, character: char) {
        self.0.push(character);
    }

    fn push_str(&mut self, text: &str) {
        self.0.push_str(text);
    }

    fn push_escaped(&mut self, character: char) {
        // Writing to a String cannot fail.
        write!(self.0, "\\u{{{:x}}}", u32::from(character)).unwrap_or_default();
    }

    fn is_full(&self) -> bool {
        self.0.len() > LONGEST
    }

    fn finish(mut self) -> String {
        if self.is_full() {
            self.0.push('…');
        }
        self.0
    }
}

/// Longer than any name in use (a DNS name has at most 253 characters), shorter than what clogs a log.
const LONGEST: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_lose_leading_zeros_but_not_all() {
        for (octets, expected) in
            [(&[0, 0x80, 1][..], "8001"), (&[0], "00"), (&[], ""), (&[0, 0, 0x0a], "0a")]
        {
            assert_eq!(serial(octets), expected, "{octets:?}");
        }
    }

    #[test]
    fn dns_names_are_lower_case_and_cannot_forge_a_log_line() {
        assert_eq!(dns_name("*.Example.COM"), "*.example.com");
        assert_eq!(dns_name("a\nb\\\u{1b}é"), "a\\u{a}b\\u{5c}\\u{1b}\\u{e9}");
        assert!(dns_name(&"a".repeat(1 << 20)).len() < 600);
    }

    #[test]
    fn hidden_and_reordering_characters_are_not_harmless() {
        assert!("Zürich 北京 *@!".chars().all(is_harmless));
        assert!("\0\n\u{7f}\u{85}\u{200b}\u{202e}\u{2028}\u{feff}\u{e0041}".chars().all(|c| !is_harmless(c)));
    }
}
