//! Certificates, keys and CAs by number, made once for all scripts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use rustls_reload::issue::{Ca, Issued};

use crate::common::Pki;
use crate::script::Line;

/// A CA that can be recognised among trust anchors.
pub(crate) struct Authority {
    pub(crate) ca: Ca,
}

impl Authority {
    pub(crate) fn is(&self, root: &rustls::pki_types::TrustAnchor<'_>) -> bool {
        let der = self.ca.cert_der().as_ref();
        let key = root.subject_public_key_info.as_ref();
        der.windows(key.len()).any(|window| window == key)
    }
}

/// The bytes that a line asks for: certificate, key, CA, text, in this order.
pub(crate) fn content(line: &Line) -> Result<Vec<u8>, String> {
    let samekey = line.number("samekey")?;
    let mut content = Vec::new();
    if let Some(serial) = line.number("cert")? {
        content.extend(issued(serial, samekey).chain_pem().into_bytes());
    }
    if let Some(serial) = line.number("key")? {
        content.extend(issued(serial, samekey).key_pem().as_bytes());
    }
    if let Some(number) = line.number("ca")? {
        content.extend(ca(number).ca.cert_pem().as_bytes());
    }
    content.extend(line.option("text").unwrap_or_default().as_bytes());
    let length = |key| Ok::<_, String>(line.number(key)?.map(|number| usize::try_from(number).unwrap()));
    content.resize(content.len() + length("nul")?.unwrap_or(0), 0);
    if let Some(length) = length("cut")? {
        content.truncate(length);
    }
    if let Some(length) = length("pad")? {
        content.resize(length.max(content.len()), b'\n');
    }
    Ok(content)
}

/// The pair with this serial number; made once, by all scripts together.
pub(crate) fn issued(serial: u64, samekey: Option<u64>) -> Arc<Issued> {
    type Made = HashMap<(u64, Option<u64>), Arc<Issued>>;
    static PKI: OnceLock<Pki> = OnceLock::new();
    static MADE: OnceLock<Mutex<Made>> = OnceLock::new();
    let made = || MADE.get_or_init(Mutex::default).lock().unwrap();
    let samekey = samekey.filter(|key| *key != serial);
    if let Some(issued) = made().get(&(serial, samekey)) {
        return Arc::clone(issued);
    }
    let key_of = samekey.map(|key| issued(key, None));
    let leaf = PKI.get_or_init(Pki::new).root().server(&["localhost"]).serial(serial);
    let leaf = match &key_of {
        Some(other) => leaf.key(other.key()),
        None => leaf,
    };
    let new = Arc::new(leaf.issue().unwrap());
    Arc::clone(made().entry((serial, samekey)).or_insert(new))
}

/// The CA with this number; made once, by all scripts together.
pub(crate) fn ca(number: u64) -> Arc<Authority> {
    static MADE: OnceLock<Mutex<HashMap<u64, Arc<Authority>>>> = OnceLock::new();
    let mut made = MADE.get_or_init(Mutex::default).lock().unwrap();
    let new = || Arc::new(Authority { ca: Ca::new(&format!("CA {number}")).unwrap() });
    Arc::clone(made.entry(number).or_insert_with(new))
}

pub(crate) fn serial(generation: &rustls_reload::Generation) -> u64 {
    u64::from_str_radix(generation.bundle().leaf().serial(), 16).unwrap()
}
