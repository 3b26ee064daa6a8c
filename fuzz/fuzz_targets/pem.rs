//! No panic; the blocks come in order; nothing that can be printed quotes the text.
#![no_main]

use rustls_reload::pem;
use rustls_reload_fuzz::secret::{assert_not_quoted, shown};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    match pem::parse(text) {
        Ok(blocks) => {
            assert!(!blocks.is_empty());
            assert!(blocks.is_sorted_by(|one, next| one.line() < next.line()));
            assert_not_quoted(text, &format!("{blocks:?}"));
        }
        Err(error) => assert_not_quoted(text, &shown(&error)),
    }
});
