//! Log lines on standard error. Twenty lines, so that the example needs no logging crate.

use std::io::{self, Write as _};

use log::{LevelFilter, Log, Metadata, Record};

use crate::clock;

/// Starts logging, at `level` unless `RUST_LOG` names another one.
pub(crate) fn start(level: LevelFilter) {
    let wanted = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(wanted.unwrap_or(level));
    }
}

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let (at, level) = (clock::rfc3339(clock::now()), record.level());
            let line = format!("{at} {level:5} {}: {}\n", record.target(), record.args());
            // One write a line, so that lines of several threads stay apart. A log that nobody reads any
            // more is no reason to end.
            drop(io::stderr().lock().write_all(line.as_bytes()));
        }
    }

    fn flush(&self) {}
}
