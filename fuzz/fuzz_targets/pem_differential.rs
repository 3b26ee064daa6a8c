//! What is accepted is what `rustls-pemfile` reads from the clean text: the same labels and DER in the same
//! order, and one block for each BEGIN, wherever on its line that stands.
#![no_main]

use rustls_reload::pem;
use rustls_reload_fuzz::pem_model::{READ, count_of_begin, labels, normalised, reference};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(blocks) = pem::parse(text) else { return };
    let clean = normalised(text);
    let labels = labels(&clean);
    assert_eq!(blocks.len(), labels.len());
    assert_eq!(blocks.len(), count_of_begin(text));
    for (block, label) in blocks.iter().zip(labels) {
        assert_eq!(block.der().is_empty(), !READ.contains(&label));
    }
    let read = blocks.iter().filter(|block| !block.der().is_empty());
    let read: Vec<_> = read.map(|block| (block.label().to_string(), block.der().to_vec())).collect();
    assert_eq!(read, reference(&clean));
});
