//! Keeps the TLS certificates, keys and trust of a running process fresh while the files on disk rotate.
#![forbid(unsafe_code)]

mod paths;
mod source;
mod sys;
mod thread;
mod watch;

pub use paths::{Paths, Role};
