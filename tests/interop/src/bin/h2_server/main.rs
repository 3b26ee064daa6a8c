//! An HTTP/2 server (hyper, tokio) whose certificate follows the files on disk.
//!
//! ```text
//! cargo run --release -p interop --bin h2_server -- --secret /etc/tls --listen 127.0.0.1:8443
//! ```
//!
//! The reloader brings two threads of its own and blocks in nothing that the runtime runs: where the config
//! of a connection is taken is in `tls.rs`. The rest is an HTTP server for tools such as h2load and curl.
#![forbid(unsafe_code)]

mod answer;
mod args;
mod body;
mod server;
mod tls;

use std::error::Error;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use rustls_reload::{Event, Paths, Reloader};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use args::{Command, Config, Options};
use tls::Tls;

fn main() -> ExitCode {
    let options = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => {
            // Nobody is hurt by help that nobody reads.
            drop(writeln!(io::stdout(), "{}", args::USAGE));
            return ExitCode::SUCCESS;
        }
        Ok(Command::Run(options)) => options,
        Err(complaint) => {
            say(&format!("{complaint}\nTry --help."));
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&with_causes(error.as_ref()));
            ExitCode::from(1)
        }
    }
}

/// Serves until a signal ends it.
fn run(options: Options) -> Result<(), Box<dyn Error>> {
    // Blocks for as long as one load takes; so before there is a runtime.
    let reloader = Reloader::builder(Paths::secret(options.secret))
        .identity("h2")
        .alpn([tls::H2, tls::HTTP_1_1])
        .on_event(|event| {
            // A swap is what is expected, and the pipe of a tool that reads nothing more would fill up.
            if !matches!(event, Event::Swapped(_)) {
                say(&event.to_string());
            }
        })
        .start()?;
    let tls = match options.config {
        Config::PerConnection => Tls::per_connection(reloader.clone()),
        Config::Fixed => Tls::fixed(&reloader)?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before the ready line: whoever reads it may send a signal at once.
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (listener, address) = bind(&options.listen).await?;
        say(&format!("serving on https://{address}"));
        let stop = async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        server::serve(listener, Arc::new(tls), stop).await;
        Ok::<(), io::Error>(())
    })?;
    // What did not end in time is cut off here.
    runtime.shutdown_background();
    reloader.shutdown();
    Ok(())
}

/// Binds, and says what could not be bound.
async fn bind(address: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("{address}: cannot listen: {error}")))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// One line to stderr. Whether it can be written must not end a server.
fn say(line: &str) {
    drop(writeln!(io::stderr(), "h2_server: {line}"));
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
