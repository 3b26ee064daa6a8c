//! The few steps into DER that no parser offers for private keys, OCSP responses and guesses at a file's
//! content: tag, length, content.
//!
//! Knows nothing of what the elements mean. Definite lengths up to four octets and one-octet tags only
//! (X.690 §8.1.3): everything that is looked at here uses no others.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const SEQUENCE: u8 = 0x30;
/// `[0]`, constructed.
pub(crate) const CONTEXT_0: u8 = 0xa0;

/// One element: its tag octet and its content.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
}

/// Elements that follow one another.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(der: &'a [u8]) -> Self {
        Self { rest: der }
    }

    /// The content of the one `SEQUENCE` that `der` is, with nothing behind it.
    pub(crate) fn sequence(der: &'a [u8]) -> Option<Self> {
        let mut outer = Self::new(der);
        let content = outer.expect(SEQUENCE)?;
        outer.rest.is_empty().then(|| Self::new(content))
    }

    /// The next element, whatever it is.
    pub(crate) fn next(&mut self) -> Option<Element<'a>> {
        let (&[tag, first], rest) = self.rest.split_first_chunk::<2>()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = octets.iter().try_fold(0_usize, |length, octet| {
                    Some(length.checked_mul(256)? | usize::from(*octet))
                })?;
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some(Element { tag, content })
    }

    /// The content of the next element, if its tag is `tag`; else nothing is consumed.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.rest;
        match self.next() {
            Some(element) if element.tag == tag => Some(element.content),
            _ => {
                self.rest = before;
                None
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// The size in bits of a non-negative INTEGER's content.
pub(crate) fn bits(integer: &[u8]) -> u32 {
    let significant = integer.iter().skip_while(|octet| **octet == 0);
    let first = significant.clone().next().map_or(8, |octet| octet.leading_zeros());
    u32::try_from(significant.count()).unwrap_or(u32::MAX).saturating_mul(8).saturating_sub(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_beyond_the_input_are_refused() {
        for der in [
            &[0x30][..],
            &[0x30, 1],
            &[0x30, 0x82, 1],
            &[0x30, 0x84, 255, 255, 255, 255],
            &[0x30, 0x80, 0, 0],
        ] {
            assert!(Reader::new(der).next().is_none(), "{der:?}");
        }
        assert!(Reader::sequence(&[0x30, 1, 5, 0]).is_none(), "something behind the sequence");
    }

    #[test]
    fn an_unexpected_tag_consumes_nothing() {
        let mut reader = Reader::new(&[2, 1, 7, 4, 0]);
        assert!(reader.expect(OCTET_STRING).is_none());
        assert_eq!(reader.expect(INTEGER), Some(&[7][..]));
        assert_eq!(reader.expect(OCTET_STRING), Some(&[][..]));
        assert!(reader.is_empty());
    }

    #[test]
    fn bits_ignore_leading_zeros() {
        for (integer, expected) in
            [(&[][..], 0), (&[0], 0), (&[0, 0x80], 8), (&[1, 0], 9), (&[0, 0xff, 0], 16)]
        {
            assert_eq!(bits(integer), expected, "{integer:?}");
        }
    }
}
