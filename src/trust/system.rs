//! The roots of the operating system: loaded once per process, and only when asked for.

use rustls::RootCertStore;

/// The roots of the operating system; `None` if there are none, or the crate is built without `system-roots`.
///
/// The first call reads them, which takes milliseconds; what cannot be used of them is logged. They are not
/// read again: an update of the operating system's pool is seen by the next process.
#[cfg(feature = "system-roots")]
pub(crate) fn system_roots() -> Option<&'static RootCertStore> {
    use std::sync::OnceLock;

    use log::warn;

    static POOL: OnceLock<RootCertStore> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            warn!("the roots of the operating system: {error}");
        }
        let mut pool = RootCertStore::empty();
        let (_, unusable) = pool.add_parsable_certificates(found.certs);
        if unusable > 0 {
            warn!("{unusable} roots of the operating system cannot be used");
        }
        pool
    });
    (!pool.is_empty()).then_some(pool)
}

/// See the other one: this is what a build without `system-roots` has.
#[cfg(not(feature = "system-roots"))]
pub(crate) fn system_roots() -> Option<&'static RootCertStore> {
    None
}
