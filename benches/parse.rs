//! A CA bundle and a chain file at one, two and four times the size that is usual at most: the time per byte
//! stays the same where the work is linear.
//!
//! Prints; fails nothing. Quadratic work would show as a ratio near 4.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::as_conversions,
    reason = "a benchmark: prints, and stops where it cannot go on"
)]

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls_reload::issue::{Ca, Key, KeyType};
use rustls_reload::{Bundle, Material, pem};

fn main() {
    let key = Key::generate(KeyType::EcdsaP256).unwrap();
    let ca = Ca::builder("bench").key(&key).build().unwrap();
    let issued = ca.server(&["localhost"]).key(&key).issue().unwrap();
    let (leaf, leaf_key) = (issued.chain_pem(), issued.key_pem());
    let (provider, now) = (provider(), UnixTime::now());

    let anchors = |count| {
        let anchor = |number| Ca::builder(&format!("anchor {number}")).key(&key).build().unwrap();
        (0..count).map(|number| anchor(number).cert_pem().to_owned()).collect::<String>()
    };
    let chain = |size| {
        let mut chain = leaf.clone();
        for number in 0.. {
            if chain.len() >= size {
                break;
            }
            let intermediate = ca.intermediate(&format!("link {number}")).key(&key).build().unwrap();
            chain.push_str(intermediate.cert_pem());
        }
        chain
    };

    println!("{:33}{:>11}{:>12}{:>12}{:>8}", "", "bytes", "time", "ns/byte", "ratio");
    let bundles = SIZES.map(|times| anchors(200 * times));
    rows("CA bundle of 200, pem", &bundles, |text| pem::parse(text.as_bytes()).unwrap().len());
    rows("CA bundle of 200, validated", &bundles, |text| {
        let material = Material::new(leaf.as_bytes(), leaf_key.as_bytes()).with_ca(text.as_bytes());
        Bundle::from_pem(&material, &provider, now).unwrap().trust().unwrap().anchors()
    });
    let chains = SIZES.map(|times| chain(times << 20));
    rows("chain of 1 MiB, pem", &chains, |text| pem::parse(text.as_bytes()).unwrap().len());
    rows("chain of 1 MiB, validated", &chains, |text| {
        let material = Material::new(text.as_bytes(), leaf_key.as_bytes());
        Bundle::from_pem(&material, &provider, now).unwrap().chain().len()
    });
    rows("chain of 1 MiB, rustls-pemfile", &chains, |text| {
        rustls_pemfile::certs(&mut text.as_bytes()).map(Result::unwrap).count()
    });
}

/// One line for each size; the ratio is that of the time per byte to the first line's.
fn rows(what: &str, texts: &[String; 3], parse: impl Fn(&str) -> usize) {
    let mut first = None;
    for (text, times) in texts.iter().zip(SIZES) {
        let time = best(|| black_box(parse(black_box(text))));
        let per_byte = time.as_nanos() as f64 / text.len() as f64;
        let ratio = per_byte / *first.get_or_insert(per_byte);
        println!("{what:31}{times}x{:>11}{time:>12.2?}{per_byte:>12.2}{ratio:>8.2}", text.len());
    }
}

/// The least of some runs, in time on the processor: what other programs cost is not in it.
fn best<T>(mut run: impl FnMut() -> T) -> Duration {
    let mut time = || {
        let start = processor_time();
        run();
        processor_time() - start
    };
    (0..RUNS).map(|_| time()).min().unwrap()
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

fn provider() -> CryptoProvider {
    #[cfg(feature = "ring")]
    return rustls::crypto::ring::default_provider();
    #[cfg(not(feature = "ring"))]
    return rustls::crypto::aws_lc_rs::default_provider();
}

const SIZES: [usize; 3] = [1, 2, 4];
const RUNS: usize = 40;
