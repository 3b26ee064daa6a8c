//! The plainest reading of a PEM text: brought into the form that every reader understands, then given to
//! `rustls-pemfile` as a whole.

use rustls_pemfile::Item;

/// LF only, no byte-order mark, nothing behind the markers; bodies without white space, and none in blocks
/// whose label is not read.
pub fn normalised(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut clean = Vec::new();
    let mut block: Option<bool> = None;
    for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let line = line.trim_ascii_end();
        if let Some(label) = begin(line) {
            block = Some(READ.contains(&label));
        } else if line.starts_with(b"-----END ") {
            block = None;
        } else if let Some(is_read) = block {
            clean.extend(line.iter().filter(|byte| is_read && !b"\t\x0b\x0c ".contains(byte)));
            clean.push(b'\n');
            continue;
        }
        clean.extend_from_slice(line);
        clean.push(b'\n');
    }
    clean
}

/// The label of each BEGIN line, in order.
pub fn labels(normalised: &[u8]) -> Vec<&[u8]> {
    normalised.split(|byte| *byte == b'\n').filter_map(begin).collect()
}

/// The DER of every block that is read, with its label.
pub fn reference(normalised: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut rest = normalised;
    let items = rustls_pemfile::read_all(&mut rest).map(|item| item.expect("not accepted by us alone"));
    let read = items.filter_map(|item| match item {
        Item::X509Certificate(der) => Some((READ[0], der.to_vec())),
        Item::Pkcs8Key(key) => Some((READ[1], key.secret_pkcs8_der().to_vec())),
        Item::Pkcs1Key(key) => Some((READ[2], key.secret_pkcs1_der().to_vec())),
        Item::Sec1Key(key) => Some((READ[3], key.secret_sec1_der().to_vec())),
        Item::Crl(der) => Some((READ[4], der.to_vec())),
        _ => None,
    });
    read.map(|(label, der)| (String::from_utf8_lossy(label).into_owned(), der)).collect()
}

/// How often BEGIN stands in the text, at the start of a line or not.
pub fn count_of_begin(text: &[u8]) -> usize {
    text.windows(BEGIN.len()).filter(|window| *window == BEGIN).count()
}

fn begin(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(BEGIN)?.strip_suffix(b"-----")
}

/// The labels whose DER is read.
pub const READ: [&[u8]; 5] =
    [b"CERTIFICATE", b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY", b"X509 CRL"];

const BEGIN: &[u8] = b"-----BEGIN ";
