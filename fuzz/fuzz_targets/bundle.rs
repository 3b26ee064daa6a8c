//! No panic, whatever is in the files and whatever the time; nothing that can be printed quotes the key.
#![no_main]

use rustls_reload::{Bundle, Paths};
use rustls_reload_fuzz::files::{Files, PROVIDER};
use rustls_reload_fuzz::secret::{assert_not_quoted, shown};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some(files) = Files::split(input) else { return };
    let paths = Paths::new("c", "k").with_ca("a").with_crl("r").with_ocsp("o");
    let output = match Bundle::from_pem(&files.material(), &PROVIDER, files.now) {
        Ok(bundle) => {
            let warnings = bundle.warnings().iter().map(|warning| warning.display_with(&paths).to_string());
            format!("{bundle:?} {:?} {}", bundle.certified_key(), warnings.collect::<String>())
        }
        Err(error) => format!("{} {} {:?}", shown(&error), error.display_with(&paths), files.material()),
    };
    // A name of rustls that a key file may happen to hold.
    assert_not_quoted(files.key(), &output.replace("Ed25519SigningKey", ""));
});
