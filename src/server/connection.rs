//! One connection: a task that reads frames, has them handled one after the other, and writes the answers in order.
//!
//! Handling has two phases. In the first the request takes its effect in the order of the connection; a handler that then
//! has to wait for others (a produce for its replicas) gives back a future, and the next request begins. So requests are
//! pipelined, their effects are in order, and their answers are too. When the peer closes, what it had sent whole still
//! takes effect, save a call that does nothing more than wait (`Call::may_be_dropped`).

use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::frame_reader::{FrameReader, ReadError};
use super::limits::ConnectionLimits;
use crate::api::{Api, Call, Handled, ListenerInfo, Reply};
use crate::wire::rope::Rope;

/// Requests of one connection that may wait for their answers; the next stays in the socket.
const MAX_PIPELINED: usize = 64;

/// Answers are not fetched from handlers while more than this waits to be written.
const MAX_UNWRITTEN: usize = 1 << 20;

/// The slices given to one `writev`.
const MAX_SLICES: usize = 64;

/// What a connection is given by its listener.
pub struct Settings {
    pub max_frame: usize,
    pub max_idle: Duration,
}

type HandledFuture = Pin<Box<dyn Future<Output = Handled> + Send>>;
type ReplyFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A request whose answer has not been written yet.
enum Outstanding {
    Ready(Reply),
    Waiting(ReplyFuture),
}

/// Why the task ends.
enum End {
    PeerClosed,
    Idle,
    Refused(String),
    Read(ReadError),
    Write(io::Error),
}

enum Event {
    Written(io::Result<usize>),
    Reply(Reply),
    Handled(Handled),
    Frame(Result<Option<Bytes>, ReadError>),
    Timer,
}

/// Serves `stream` until either side closes it.
pub async fn serve(
    mut stream: TcpStream,
    peer: SocketAddr,
    listener: Arc<ListenerInfo>,
    api: Arc<Api>,
    limits: Arc<ConnectionLimits>,
    settings: &Settings,
) {
    let (mut reader, mut writer) = stream.split();
    let mut frames = FrameReader::new(settings.max_frame);
    let mut work = Work::new(peer, listener, api, limits);
    let mut last_active = Instant::now();
    let mut idle = pin!(sleep_until(last_active + settings.max_idle));
    let end = loop {
        work.begin_next();
        if work.is_over() {
            break End::PeerClosed;
        }
        let event = tokio::select! {
            biased;
            written = work.output.write(&mut writer), if !work.output.is_empty() => Event::Written(written),
            reply = first(&mut work.outstanding), if work.output.len < MAX_UNWRITTEN => Event::Reply(reply),
            handled = current(&mut work.current) => Event::Handled(handled),
            frame = frames.next(&mut reader), if work.wants_frame() => Event::Frame(frame),
            () = &mut idle => Event::Timer,
        };
        match event {
            Event::Written(Ok(_)) => {}
            Event::Written(Err(error)) => break End::Write(error),
            Event::Reply(Reply::Send(rope)) => work.output.push(&rope),
            Event::Reply(Reply::Nothing) => {}
            Event::Reply(Reply::Close(reason)) => break End::Refused(reason),
            Event::Handled(handled) => work.handled(handled),
            Event::Frame(Ok(Some(frame))) => work.next_frame = Some(frame),
            Event::Frame(Ok(None)) => work.peer_closed(),
            Event::Frame(Err(error)) => break End::Read(error),
            Event::Timer => {
                let now = Instant::now();
                if work.is_quiet() && now >= last_active + settings.max_idle {
                    break End::Idle;
                }
                let since = if work.is_quiet() { last_active } else { now };
                idle.as_mut().reset(since + settings.max_idle);
                continue;
            }
        }
        last_active = Instant::now();
    };
    match end {
        End::PeerClosed => debug!(%peer, "connection closed by the client"),
        End::Idle => debug!(%peer, "connection closed after connections.max.idle.ms"),
        End::Write(error) => debug!(%peer, %error, "connection lost"),
        End::Read(ReadError::Io(error)) => debug!(%peer, %error, "connection lost"),
        End::Read(error) => info!(%peer, %error, "closing the connection"),
        End::Refused(reason) => info!(%peer, reason, "closing the connection"),
    }
}

/// The requests of a connection, from frame to written answer.
struct Work {
    peer: SocketAddr,
    listener: Arc<ListenerInfo>,
    api: Arc<Api>,
    limits: Arc<ConnectionLimits>,
    /// Read while `current` is in its first phase; also how a vanished peer is noticed then.
    next_frame: Option<Bytes>,
    current: Option<(Arc<Call>, HandledFuture)>,
    outstanding: VecDeque<Outstanding>,
    output: Output,
    peer_closed: bool,
}

impl Work {
    fn new(
        peer: SocketAddr,
        listener: Arc<ListenerInfo>,
        api: Arc<Api>,
        limits: Arc<ConnectionLimits>,
    ) -> Work {
        Work {
            peer,
            listener,
            api,
            limits,
            next_frame: None,
            current: None,
            outstanding: VecDeque::new(),
            output: Output::default(),
            peer_closed: false,
        }
    }

    /// Starts the request that was read, if its turn has come.
    fn begin_next(&mut self) {
        if self.current.is_some() || self.outstanding.len() >= MAX_PIPELINED {
            return;
        }
        let Some(frame) = self.next_frame.take() else { return };
        let call = Arc::new(Call::new(self.peer, Arc::clone(&self.listener)));
        let (api, slots, of_handler) =
            (Arc::clone(&self.api), Arc::clone(&self.limits.requests), Arc::clone(&call));
        let future = Box::pin(async move {
            // The semaphore is never closed; without a slot the request would still be handled.
            of_handler.hold_slot(slots.acquire_owned().await.ok());
            let handled = api.handle(&of_handler, frame).await;
            of_handler.release_slot();
            handled
        });
        self.current = Some((call, future));
    }

    fn handled(&mut self, handled: Handled) {
        self.current = None;
        self.outstanding.push_back(match handled {
            Handled::Done(reply) => Outstanding::Ready(reply),
            Handled::Later(future) => Outstanding::Waiting(future),
        });
    }

    fn wants_frame(&self) -> bool {
        self.next_frame.is_none() && !self.peer_closed
    }

    fn peer_closed(&mut self) {
        self.peer_closed = true;
    }

    /// Nothing is in work, nothing waits to be written.
    fn is_quiet(&self) -> bool {
        self.current.is_none()
            && self.next_frame.is_none()
            && self.outstanding.is_empty()
            && self.output.is_empty()
    }

    /// The peer has closed, and nothing that it sent must still take effect: answers have nobody to read them.
    fn is_over(&self) -> bool {
        self.peer_closed
            && self.next_frame.is_none()
            && self.current.as_ref().is_none_or(|(call, _)| call.may_be_dropped())
    }
}

/// What waits to be written.
#[derive(Default)]
struct Output {
    segments: VecDeque<Bytes>,
    len: usize,
}

impl Output {
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn push(&mut self, rope: &Rope) {
        self.len += rope.len();
        self.segments.extend(rope.segments().cloned());
    }

    /// Writes once; cancel safe, for what was not written is still there.
    async fn write(&mut self, writer: &mut WriteHalf<'_>) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let mut used = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            *slice = IoSlice::new(segment);
            used += 1;
        }
        let written = writer.write_vectored(&slices[..used]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.advance(written);
        Ok(written)
    }

    fn advance(&mut self, mut written: usize) {
        self.len -= written;
        while let Some(segment) = self.segments.front_mut() {
            if written < segment.len() {
                segment.advance(written);
                return;
            }
            written -= segment.len();
            self.segments.pop_front();
        }
    }
}

/// The answer of the oldest outstanding request.
async fn first(outstanding: &mut VecDeque<Outstanding>) -> Reply {
    let reply = match outstanding.front_mut() {
        None => return pending().await,
        Some(Outstanding::Waiting(future)) => future.as_mut().await,
        Some(Outstanding::Ready(_)) => match outstanding.pop_front() {
            Some(Outstanding::Ready(reply)) => return reply,
            _ => return pending().await,
        },
    };
    outstanding.pop_front();
    reply
}

/// The end of the first phase of the request in work.
async fn current(current: &mut Option<(Arc<Call>, HandledFuture)>) -> Handled {
    poll_fn(|context| match current {
        Some((_, future)) => future.as_mut().poll(context),
        None => Poll::Pending,
    })
    .await
}
