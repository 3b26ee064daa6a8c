//! A gateway for embedded Linux: TLS or mTLS in, plain TCP or TLS out, certificates that follow the files on disk.
//!
//! ```text
//! cargo run --release --example gateway -- --listen 0.0.0.0:8883 --secret /etc/tls --client-auth required \
//!     --connect 127.0.0.1:1883
//! cargo run --release --example gateway -- --help
//! ```
//!
//! One thread a connection. `gateway.rs` has what runs, `relay.rs` moves the bytes, `upstream.rs` connects to the
//! other side. README.md has the options, the static build, and what was measured.
#![forbid(unsafe_code)]

// What every small server needs, from the other example.
#[path = "../https_server/accept.rs"]
mod accept;
#[path = "../https_server/admin.rs"]
mod admin;
#[path = "../https_server/clock.rs"]
mod clock;
#[path = "../https_server/command_line.rs"]
mod command_line;
#[allow(dead_code, reason = "answers of the admin port end the connection")]
#[path = "../https_server/http.rs"]
mod http;
#[path = "../https_server/logger.rs"]
mod logger;
#[path = "../https_server/outcome.rs"]
mod outcome;
#[path = "../https_server/socket.rs"]
mod socket;
#[path = "../https_server/stop.rs"]
mod stop;

mod address;
mod args;
mod gateway;
mod relay;
mod tally;
mod upstream;

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use log::LevelFilter;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use args::{Command, Options};
use gateway::Gateway;

fn main() -> ExitCode {
    let options = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => {
            // Nobody is hurt by help that nobody reads.
            drop(writeln!(io::stdout(), "{}", args::USAGE));
            return ExitCode::SUCCESS;
        }
        Ok(Command::Run(options)) => options,
        Err(complaint) => {
            drop(writeln!(io::stderr(), "gateway: {complaint} (--help tells more)"));
            return ExitCode::from(2);
        }
    };
    logger::start(LevelFilter::Info);
    outcome::report("gateway", run(*options))
}

/// Relays until a signal ends it, or until nothing can be accepted any more.
fn run(options: Options) -> Result<ExitCode, Box<dyn Error>> {
    // The second one does not wait for the grace.
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&ending))?;
        flag::register(signal, Arc::clone(&ending))?;
    }
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let gateway = Gateway::start(options, signals.handle())?;
    let mut code = ExitCode::from(1);
    for signal in signals.forever() {
        if signal == SIGHUP {
            gateway.reload();
            continue;
        }
        log::info!("ending on signal {signal}");
        code = ExitCode::SUCCESS;
        break;
    }
    gateway.end();
    Ok(code)
}
