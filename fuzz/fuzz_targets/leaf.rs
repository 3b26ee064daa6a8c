//! Any certificate gives facts that are safe to log: short, on one line, without control characters.
#![no_main]

use rustls_reload::fuzzing;
use rustls_reload_fuzz::files::unix_time;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((der, now)) = input.split_last_chunk() else { return };
    let Some((leaf, warnings, _)) = fuzzing::leaf(der, unix_time(*now)) else { return };
    for name in [leaf.subject(), leaf.issuer(), leaf.serial()] {
        assert!(name.len() < 1024 && !name.contains(char::is_control), "{name:?}");
    }
    for name in leaf.dns_names() {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        assert!(name.len() < 1024 && name.bytes().all(is_plain), "{name:?}");
    }
    assert!(warnings.iter().all(|warning| !warning.to_string().contains(char::is_control)));
    assert!(!leaf.key_type().to_string().is_empty() && !format!("{leaf:?}").contains('\n'));
});
