//! One connection: a task that reads frames, has them handled one after the other, and writes the answers in order.
//!
//! Handling has two phases. In the first the request takes its effect in the order of the connection; a handler that then
//! has to wait for others (a produce for its replicas) gives back a future, and the next request begins. So requests are
//! pipelined, their effects are in order, and their answers are too.
//!
//! How it ends: when the peer has closed its side, what it had sent whole still takes effect and is answered, save a call
//! that does nothing more than wait (`Call::may_be_dropped`). A frame that is none, or an answer that closes the connection,
//! ends it after the answers to what came before. A connection on which nothing moves for `connections.max.idle.ms` is
//! closed, unless a request is in work; one that only waits for something to read, and a peer that does not read its
//! answers, are no work.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::frame_reader::{Frame, FrameReader, ReadError};
use super::limits::ConnectionLimits;
use crate::api::{Api, Call, ConnectionState, Handled, ListenerInfo, Reply};
use crate::wire::rope::Rope;

/// Requests of one connection that may wait for their answers; the next stays in the socket.
const MAX_PIPELINED: usize = 64;

/// Answers are not fetched from handlers while more than this waits to be written.
const MAX_UNWRITTEN: usize = 1 << 20;

/// No request begins while more bytes than this are held: of requests that wait for their answers, and of answers that wait
/// for their turn or for the peer to read them.
const MAX_HELD: usize = 8 << 20;

/// The slices given to one `writev`.
const MAX_SLICES: usize = 64;

/// What a connection is given by its listener.
pub struct Settings {
    pub max_frame: usize,
    pub max_idle: Duration,
}

type HandledFuture = Pin<Box<dyn Future<Output = Handled> + Send>>;
type ReplyFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The request in its first phase.
struct Current {
    call: Arc<Call>,
    future: HandledFuture,
    frame_len: usize,
}

/// A request whose answer has not been written yet.
struct Outstanding {
    answer: Awaited,
    /// What it holds in memory.
    bytes: usize,
}

enum Awaited {
    Ready(Reply),
    Waiting(ReplyFuture),
}

impl Outstanding {
    fn ready(reply: Reply) -> Outstanding {
        let bytes = match &reply {
            Reply::Send(rope) => rope.len(),
            Reply::Nothing | Reply::Close(_) => 0,
        };
        Outstanding { answer: Awaited::Ready(reply), bytes }
    }
}

/// What was read and has not begun.
enum Next {
    Frame(Frame),
    /// No frame: the connection is to be closed in its turn.
    Refused(String),
}

/// Why the task ends.
enum End {
    PeerClosed,
    Idle,
    Refused(String),
    Lost(io::Error),
}

enum Event {
    Written(io::Result<usize>),
    Reply(Reply),
    Handled(Handled),
    Frame(Result<Option<Frame>, ReadError>),
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
    let mut frames = FrameReader::new(settings.max_frame, limits.request_bytes.clone());
    let mut work = Work::new(peer.ip(), listener, api, limits);
    let mut last_active = Instant::now();
    let mut idle = pin!(sleep_until(last_active + settings.max_idle));
    let end = loop {
        work.begin_next();
        if let Some(end) = work.end() {
            break end;
        }
        let event = tokio::select! {
            biased;
            // Answers that are there together leave in one write.
            reply = first(&mut work.outstanding), if work.wants_reply() => Event::Reply(reply),
            written = work.output.write(&mut writer), if !work.output.is_empty() => Event::Written(written),
            handled = current(&mut work.current) => Event::Handled(handled),
            frame = frames.next(&mut reader), if work.wants_frame() => Event::Frame(frame),
            () = &mut idle => Event::Timer,
        };
        match event {
            Event::Written(Ok(_)) => {}
            Event::Written(Err(error)) => break End::Lost(error),
            Event::Reply(reply) => work.answered(reply),
            Event::Handled(handled) => work.handled(handled),
            Event::Frame(Ok(Some(frame))) => work.next = Some(Next::Frame(frame)),
            Event::Frame(Ok(None)) => work.input_ended = true,
            Event::Frame(Err(ReadError::Io(error))) => break End::Lost(error),
            Event::Frame(Err(error)) => work.refuse(error.to_string()),
            Event::Timer => {
                let now = Instant::now();
                let is_idle = !work.is_busy();
                if is_idle && now >= last_active + settings.max_idle {
                    break End::Idle;
                }
                let since = if is_idle { last_active } else { now };
                idle.as_mut().reset(since + settings.max_idle);
                continue;
            }
        }
        last_active = Instant::now();
    };
    match end {
        End::PeerClosed => debug!(%peer, "connection closed by the client"),
        End::Idle => debug!(%peer, "connection closed after connections.max.idle.ms"),
        End::Lost(error) => debug!(%peer, %error, "connection lost"),
        End::Refused(reason) => info!(%peer, reason, "closing the connection"),
    }
}

/// The requests of a connection, from frame to written answer.
struct Work {
    listener: Arc<ListenerInfo>,
    state: Arc<ConnectionState>,
    api: Arc<Api>,
    limits: Arc<ConnectionLimits>,
    /// Read while `current` is in its first phase; also how a vanished peer is noticed then.
    next: Option<Next>,
    current: Option<Current>,
    outstanding: VecDeque<Outstanding>,
    output: Output,
    /// No more frames will come.
    input_ended: bool,
    /// The connection is to be closed as soon as the output is written.
    closing: Option<String>,
}

impl Work {
    fn new(peer: IpAddr, listener: Arc<ListenerInfo>, api: Arc<Api>, limits: Arc<ConnectionLimits>) -> Work {
        Work {
            listener,
            state: Arc::new(ConnectionState::with_peer(peer)),
            api,
            limits,
            next: None,
            current: None,
            outstanding: VecDeque::new(),
            output: Output::default(),
            input_ended: false,
            closing: None,
        }
    }

    /// Starts the request that was read, if its turn has come.
    fn begin_next(&mut self) {
        if self.current.is_some() || self.outstanding.len() >= MAX_PIPELINED || self.held() > MAX_HELD {
            return;
        }
        let frame = match self.next.take() {
            None => return,
            Some(Next::Frame(frame)) => frame,
            Some(Next::Refused(reason)) => {
                return self.outstanding.push_back(Outstanding::ready(Reply::Close(reason)));
            }
        };
        let call = Arc::new(Call::new(Arc::clone(&self.listener), Arc::clone(&self.state)));
        let (api, slots, of_handler) =
            (Arc::clone(&self.api), Arc::clone(&self.limits.requests), Arc::clone(&call));
        let frame_len = frame.bytes.len();
        let future = Box::pin(async move {
            api.admit(&of_handler, &frame.bytes).await;
            // The semaphore is never closed; without a slot the request would still be handled.
            of_handler.hold_slot([slots.acquire_owned().await.ok(), frame.memory]);
            let handled = api.handle(&of_handler, frame.bytes).await;
            of_handler.release_slot();
            handled
        });
        self.current = Some(Current { call, future, frame_len });
    }

    fn handled(&mut self, handled: Handled) {
        let frame_len = self.current.take().map_or(0, |current| current.frame_len);
        self.outstanding.push_back(match handled {
            Handled::Done(reply) => Outstanding::ready(reply),
            Handled::Later(future) => Outstanding { answer: Awaited::Waiting(future), bytes: frame_len },
        });
    }

    fn answered(&mut self, reply: Reply) {
        match reply {
            Reply::Send(rope) => self.output.push(&rope),
            Reply::Nothing => {}
            Reply::Close(reason) => self.close(reason),
        }
    }

    /// The bytes of requests and answers that are on their way.
    fn held(&self) -> usize {
        self.output.len + self.outstanding.iter().map(|outstanding| outstanding.bytes).sum::<usize>()
    }

    /// What was read is no frame, and where the next one would begin is not known.
    fn refuse(&mut self, reason: String) {
        self.next = Some(Next::Refused(reason));
        self.input_ended = true;
    }

    /// Ends the connection once what was answered before is written; what came after is dropped.
    fn close(&mut self, reason: String) {
        self.closing = Some(reason);
        self.input_ended = true;
        self.next = None;
        self.current = None;
        self.outstanding.clear();
    }

    fn wants_frame(&self) -> bool {
        self.next.is_none() && !self.input_ended
    }

    fn wants_reply(&self) -> bool {
        self.output.len < MAX_UNWRITTEN
    }

    fn only_waits(&self) -> bool {
        self.current.as_ref().is_none_or(|current| current.call.may_be_dropped())
    }

    /// Whether the next move is this node's: a request is in work, or one that has been answered waits for nobody's reading.
    fn is_busy(&self) -> bool {
        !self.only_waits() || (self.output.is_empty() && !self.outstanding.is_empty())
    }

    /// Why the connection is over, if it is.
    fn end(&mut self) -> Option<End> {
        if !self.output.is_empty() {
            return None;
        }
        if let Some(reason) = self.closing.take() {
            return Some(End::Refused(reason));
        }
        let is_done =
            self.input_ended && self.next.is_none() && self.only_waits() && self.outstanding.is_empty();
        is_done.then_some(End::PeerClosed)
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
    if let Some(Outstanding { answer: Awaited::Waiting(future), .. }) = outstanding.front_mut() {
        let reply = future.as_mut().await;
        outstanding.pop_front();
        return reply;
    }
    match outstanding.pop_front() {
        Some(Outstanding { answer: Awaited::Ready(reply), .. }) => reply,
        _ => pending().await,
    }
}

/// The end of the first phase of the request in work.
async fn current(current: &mut Option<Current>) -> Handled {
    match current {
        Some(current) => current.future.as_mut().await,
        None => pending().await,
    }
}
