//! How a program ends.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Says why, if it is an error: one line with its causes, behind what was logged.
pub(crate) fn report(program: &str, outcome: Result<ExitCode, Box<dyn Error>>) -> ExitCode {
    log::logger().flush();
    outcome.unwrap_or_else(|error| {
        drop(writeln!(io::stderr(), "{program}: {}", with_causes(error.as_ref())));
        ExitCode::from(1)
    })
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
