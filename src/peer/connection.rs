//! One connection to a peer: requests are pipelined, and answers find their callers by correlation id.
//!
//! A task owns the socket; a [`Connection`] is a handle to it. Must not know what is asked. Invariants: a caller hears of
//! its answer or of the end of the connection, whichever is first; an answer is never larger than what was allowed; what was
//! asked on a connection that is given up is not sent any more.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::dial::{self, DialError};
use super::{Address, dial::within};
use crate::wire::api::{ApiRow, is_private};
use crate::wire::frame::{self, DecodeError};
use crate::wire::messages::{ApiVersionsRequest, ApiVersionsResponse};

/// An answer may have this many bytes, and those that `allow_answers` adds.
const MAX_ANSWER: usize = 128 << 20;
/// Requests that wait to be written; more wait with their callers.
const QUEUE_LEN: usize = 64;
/// Past so many outstanding requests, those that nobody waits for any more are forgotten.
const SWEEP_ABOVE: usize = 256;
/// What is read at once while no frame longer than this is under way.
const CHUNK: usize = 16 * 1024;
/// The version of ApiVersions that every node since Kafka 2.4 knows.
const API_VERSIONS_VERSION: i16 = 3;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the connection is gone")]
    Disconnected,
    #[error("no answer in time")]
    Timeout,
    #[error("the peer does not serve this request")]
    NotServed,
    #[error("a malformed message: {0}")]
    Malformed(String),
}

/// A connection to a peer; cheap to clone. The socket is closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    queue: mpsc::Sender<Outgoing>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client_id: StrBytes,
    next_id: AtomicI32,
    max_answer: AtomicUsize,
    /// What the peer serves: lowest and highest version by key.
    served: BTreeMap<i16, (i16, i16)>,
}

#[derive(Debug)]
struct Outgoing {
    id: i32,
    frame: Bytes,
    answer: oneshot::Sender<Bytes>,
}

type Outstanding = Mutex<HashMap<i32, oneshot::Sender<Bytes>>>;

impl Connection {
    /// Dials, and asks the peer what it serves.
    pub async fn open(to: &Address, client_id: &str, limit: Duration) -> Result<Connection, DialError> {
        let client_id = StrBytes::from_string(client_id.to_owned());
        let dialled = async {
            let mut stream = dial::connect(to).await?;
            let served = ask_versions(&mut stream, &client_id).await?;
            Ok((stream, served))
        };
        let (stream, served) = within(limit, to, dialled).await?;
        Ok(Connection::over(stream, served, client_id))
    }

    /// Dials a node of our own for questions of our own, of which some are answered before it says what it serves.
    pub async fn open_unasked(
        to: &Address,
        client_id: &str,
        limit: Duration,
    ) -> Result<Connection, DialError> {
        let stream = within(limit, to, dial::connect(to)).await?;
        Ok(Connection::over(stream, BTreeMap::new(), StrBytes::from_string(client_id.to_owned())))
    }

    fn over(stream: TcpStream, served: BTreeMap<i16, (i16, i16)>, client_id: StrBytes) -> Connection {
        let (queue, requests) = mpsc::channel(QUEUE_LEN);
        let shared = Arc::new(Shared {
            client_id,
            next_id: AtomicI32::new(1),
            max_answer: AtomicUsize::new(MAX_ANSWER),
            served,
        });
        tokio::spawn(carry(stream, requests, Arc::clone(&shared)));
        Connection { queue, shared }
    }

    /// Lets answers be larger than usual by so many bytes.
    pub fn allow_answers(&self, bytes: usize) {
        self.shared.max_answer.fetch_max(MAX_ANSWER.saturating_add(bytes), Ordering::Relaxed);
    }

    /// The highest version of a request that both sides know.
    pub fn version_of<R: Request>(&self) -> Option<i16> {
        let ours = ApiRow::of(R::KEY)?;
        if is_private(R::KEY) {
            return Some(ours.max);
        }
        let (min, max) = *self.shared.served.get(&R::KEY)?;
        let version = ours.max.min(max);
        (version >= ours.min && version >= min).then_some(version)
    }

    /// What the peer has said that it serves: lowest and highest version by key.
    pub fn served(&self) -> &BTreeMap<i16, (i16, i16)> {
        &self.shared.served
    }

    /// Asks in the highest version that both sides know.
    pub async fn call<R: Request + 'static>(
        &self,
        request: &R,
        limit: Duration,
    ) -> Result<R::Response, CallError> {
        let version = self.version_of::<R>().ok_or(CallError::NotServed)?;
        self.call_at(version, request, limit).await
    }

    /// Asks in a given version.
    pub async fn call_at<R: Request + 'static>(
        &self,
        version: i16,
        request: &R,
        limit: Duration,
    ) -> Result<R::Response, CallError> {
        let api = ApiRow::of(R::KEY).ok_or(CallError::NotServed)?;
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let client_id = Some(self.shared.client_id.clone());
        let frame = frame::encode_request(api, version, id, client_id, request)
            .map_err(|error| CallError::Malformed(error.to_string()))?
            .into_bytes();
        let (answer, answered) = oneshot::channel();
        let asked = async {
            let sent = self.queue.send(Outgoing { id, frame, answer }).await;
            sent.map_err(|_| CallError::Disconnected)?;
            answered.await.map_err(|_| CallError::Disconnected)
        };
        let answer = tokio::time::timeout(limit, asked).await.map_err(|_| CallError::Timeout)??;
        let malformed = |error: DecodeError| CallError::Malformed(error.to_string());
        let (_, body) = frame::parse_response(api, version, answer).map_err(malformed)?;
        frame::decode(body, version).map_err(malformed)
    }

    /// Asks what every node answers at once, to see whether it does.
    pub async fn ask_anything(&self, limit: Duration) -> Result<(), CallError> {
        match self.call_at(API_VERSIONS_VERSION, &ApiVersionsRequest::default(), limit).await {
            // Whatever it is, it is an answer.
            Ok(_) | Err(CallError::Malformed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Resolves when the connection is gone.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }

    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

/// The first exchange on a connection.
async fn ask_versions(stream: &mut TcpStream, client_id: &StrBytes) -> io::Result<BTreeMap<i16, (i16, i16)>> {
    let api = ApiRow::of(<ApiVersionsRequest as Request>::KEY)
        .ok_or_else(|| invalid("ApiVersions is in no table"))?;
    let request = ApiVersionsRequest {
        client_software_name: StrBytes::from_static_str("floodmark"),
        client_software_version: StrBytes::from_static_str(env!("CARGO_PKG_VERSION")),
        ..ApiVersionsRequest::default()
    };
    let version = API_VERSIONS_VERSION;
    let frame = frame::encode_request(api, version, 0, Some(client_id.clone()), &request);
    stream.write_all(&frame.map_err(io::Error::other)?.into_bytes()).await?;
    let (mut reader, _writer) = stream.split();
    let answer = read_frame(&mut reader, &mut BytesMut::new(), MAX_ANSWER).await?;
    let answer = answer.ok_or(io::ErrorKind::UnexpectedEof)?;
    let (_, body) = frame::parse_response(api, version, answer).map_err(io::Error::other)?;
    let answer: ApiVersionsResponse = frame::decode(body, version).map_err(io::Error::other)?;
    if answer.error_code != 0 {
        return Err(invalid("the peer does not tell what it serves"));
    }
    Ok(answer.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect())
}

/// The task of a connection, until either side closes it.
async fn carry(mut stream: TcpStream, requests: mpsc::Receiver<Outgoing>, shared: Arc<Shared>) {
    let (mut reader, mut writer) = stream.split();
    let outstanding = Outstanding::default();
    // What is outstanding is dropped with this function, and whoever waits hears of it.
    let ended = tokio::select! {
        ended = send_requests(&mut writer, requests, &outstanding) => ended,
        ended = receive_answers(&mut reader, &outstanding, &shared) => ended,
    };
    if !lock(&outstanding).is_empty() {
        // The system would go on sending what is asked here until the network lets it through, long after whoever asked has
        // done so once more elsewhere.
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    }
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to a peer has ended");
    }
}

async fn send_requests(
    writer: &mut WriteHalf<'_>,
    mut requests: mpsc::Receiver<Outgoing>,
    outstanding: &Outstanding,
) -> io::Result<()> {
    while let Some(Outgoing { id, frame, answer }) = requests.recv().await {
        // Who has stopped waiting wants nothing any more.
        if answer.is_closed() {
            continue;
        }
        expect_answer(outstanding, id, answer);
        writer.write_all(&frame).await?;
    }
    Ok(())
}

fn expect_answer(outstanding: &Outstanding, id: i32, answer: oneshot::Sender<Bytes>) {
    let mut waiting = lock(outstanding);
    if waiting.len() >= SWEEP_ABOVE {
        waiting.retain(|_, answer| !answer.is_closed());
    }
    waiting.insert(id, answer);
}

async fn receive_answers(
    reader: &mut ReadHalf<'_>,
    outstanding: &Outstanding,
    shared: &Shared,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while let Some(answer) =
        read_frame(reader, &mut buffer, shared.max_answer.load(Ordering::Relaxed)).await?
    {
        let id = answer.first_chunk().map(|id| i32::from_be_bytes(*id));
        let id = id.ok_or_else(|| invalid("an answer without a header"))?;
        // An answer to nobody is one that came too late.
        if let Some(to) = lock(outstanding).remove(&id) {
            let _ = to.send(answer);
        }
    }
    Ok(())
}

/// The next frame without its length; `None` when the peer has closed.
async fn read_frame(
    reader: &mut ReadHalf<'_>,
    buffer: &mut BytesMut,
    max: usize,
) -> io::Result<Option<Bytes>> {
    loop {
        let missing = match buffer.first_chunk::<4>() {
            None => CHUNK,
            Some(length) => {
                let length = usize::try_from(i32::from_be_bytes(*length)).ok().filter(|&len| len <= max);
                let length = length.ok_or_else(|| invalid("an answer of a length that is not allowed"))?;
                if buffer.len() >= 4 + length {
                    buffer.advance(4);
                    return Ok(Some(buffer.split_to(length).freeze()));
                }
                4 + length - buffer.len()
            }
        };
        // Untouched pages of it cost nothing until the peer really sends them.
        buffer.reserve(missing);
        if reader.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn lock(outstanding: &Outstanding) -> MutexGuard<'_, HashMap<i32, oneshot::Sender<Bytes>>> {
    outstanding.lock().unwrap_or_else(PoisonError::into_inner)
}
