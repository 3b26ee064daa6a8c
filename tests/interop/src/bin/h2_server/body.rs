//! Bytes that take their time.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// One piece of a stream.
static PIECE: [u8; 16 * 1_024] = [b'.'; 16 * 1_024];
/// How many pieces wait for a client that reads slowly.
const AHEAD: usize = 2;

/// `length` bytes, spread evenly over the time `over`; the end comes no earlier.
pub(crate) fn stream(length: u64, over: Duration) -> Pieces {
    let (sender, pieces) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let begun = Instant::now();
        let mut sent = 0;
        while sent < length {
            let left = usize::try_from(length - sent).unwrap_or(usize::MAX);
            let piece = PIECE.get(..left).unwrap_or(&PIECE);
            if sender.send(Bytes::from_static(piece)).await.is_err() {
                // The client does not want the rest.
                return;
            }
            sent += u64::try_from(piece.len()).unwrap_or(u64::MAX);
            if !over.is_zero() {
                sleep_until(begun + share(over, sent, length)).await;
            }
        }
    });
    Pieces(pieces)
}

/// Pieces as they come. Not the channel of `http-body-util` 0.1.5, which asks for a piece and then for the end: a
/// last piece that comes in between is lost, one stream in some ten thousand.
pub(crate) struct Pieces(mpsc::Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// `part` of `whole` of the time.
fn share(time: Duration, part: u64, whole: u64) -> Duration {
    let nanos = time.as_nanos() * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(nanos).map_or(time, Duration::from_nanos)
}
