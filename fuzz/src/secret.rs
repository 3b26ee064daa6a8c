//! The search for key material in what can be printed.

use std::collections::HashSet;
use std::fmt::{Debug, Display};

/// Panics if `output` quotes 16 characters of base64 that stand in `input`, with or without its line breaks.
///
/// Runs without a digit, a capital and a small letter are passed over: they are words and hashes in hexadecimal.
/// Of the runs of a real key only few are such.
pub fn assert_not_quoted(input: &[u8], output: &str) {
    let suspects: Vec<&[u8]> = output.as_bytes().windows(RUN).filter(|run| is_telling(run)).collect();
    if suspects.is_empty() {
        return;
    }
    let dense: Vec<u8> = input.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let secrets: HashSet<&[u8]> = dense.windows(RUN).collect();
    assert!(suspects.iter().all(|run| !secrets.contains(run)), "the input is quoted in: {output}");
}

/// Both forms of an error.
pub fn shown(error: &(impl Debug + Display)) -> String {
    format!("{error} {error:?}")
}

fn is_telling(run: &[u8]) -> bool {
    run.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte))
        && run.iter().any(u8::is_ascii_digit)
        && run.iter().any(u8::is_ascii_uppercase)
        && run.iter().any(u8::is_ascii_lowercase)
}

const RUN: usize = 16;
