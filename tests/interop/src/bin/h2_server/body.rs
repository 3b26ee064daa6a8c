//! Bytes that take their time.

use std::time::Duration;

use http_body_util::channel::Channel;
use hyper::body::Bytes;
use tokio::time::{Instant, sleep_until};

/// One piece of a stream.
static PIECE: [u8; 16 * 1_024] = [b'.'; 16 * 1_024];
/// How many pieces wait for a client that reads slowly.
const AHEAD: usize = 2;

/// `length` bytes, spread evenly over the time `over`; the end comes no earlier.
pub(crate) fn stream(length: u64, over: Duration) -> Channel<Bytes> {
    let (mut sender, body) = Channel::new(AHEAD);
    tokio::spawn(async move {
        let begun = Instant::now();
        let mut sent = 0;
        while sent < length {
            let left = usize::try_from(length - sent).unwrap_or(usize::MAX);
            let piece = PIECE.get(..left).unwrap_or(&PIECE);
            if sender.send_data(Bytes::from_static(piece)).await.is_err() {
                // The client does not want the rest.
                return;
            }
            sent += u64::try_from(piece.len()).unwrap_or(u64::MAX);
            if !over.is_zero() {
                sleep_until(begun + share(over, sent, length)).await;
            }
        }
    });
    body
}

/// `part` of `whole` of the time.
fn share(time: Duration, part: u64, whole: u64) -> Duration {
    let nanos = time.as_nanos() * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(nanos).map_or(time, Duration::from_nanos)
}
