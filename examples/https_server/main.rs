//! A blocking HTTPS server whose certificate follows the files on disk. No async runtime, no restart.
//!
//! ```text
//! cargo run --release --example https_server                       # a demonstration: nothing to prepare
//! cargo run --release --example https_server -- --secret /etc/tls  # your own files
//! cargo run --release --example https_server -- --help
//! ```
//!
//! What a program of your own needs from here is in `service.rs` (start and stop) and `server.rs` (a
//! `TlsListener` and a pool of threads). The rest is an HTTP server, and the demonstration.
#![forbid(unsafe_code)]

mod accept;
mod admin;
mod args;
mod clock;
mod command_line;
mod demo;
mod http;
mod logger;
mod outcome;
mod probe;
mod server;
mod service;
mod socket;
mod stop;

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use log::LevelFilter;
use signal_hook::iterator::Signals;

use args::{Command, Source};
use service::Service;

fn main() -> ExitCode {
    let options = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => {
            // Nobody is hurt by help that nobody reads.
            drop(writeln!(io::stdout(), "{}", args::USAGE));
            return ExitCode::SUCCESS;
        }
        Ok(Command::Run(options)) => options,
        Err(complaint) => {
            drop(writeln!(io::stderr(), "https_server: {complaint}\nTry --help."));
            return ExitCode::from(2);
        }
    };
    let outcome = match &options.source {
        Source::Demo { rotations } => demo::run(&options, *rotations),
        Source::Files(paths) => {
            logger::start(LevelFilter::Info);
            serve(paths.clone(), &options)
        }
    };
    outcome::report("https_server", outcome)
}

/// Serves until a signal ends it.
fn serve(paths: rustls_reload::Paths, options: &args::Options) -> Result<ExitCode, Box<dyn Error>> {
    let mut signals = Signals::new(service::SIGNALS)?;
    let service = Service::start(paths, options)?;
    service.obey(&mut signals);
    service.end();
    Ok(ExitCode::SUCCESS)
}
