//! A client that speaks frames: sends requests of any version, also without waiting, and decodes what comes back. It checks
//! that answers come in the order of the requests and are used up to the last byte.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use floodmark::wire::api::ApiRow;
use floodmark::wire::frame::{decode, encode_request};
use kafka_protocol::protocol::{Decodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request with the response that the table has for it.
pub trait Exchange: Request + 'static {
    type Answer: Decodable + HeaderVersion;
}

macro_rules! define_exchanges {
    ($({ $key:literal, $name:ident, $min:literal..=$max:literal, flexible $flexible:tt, [$($listener:ident),+],
         advertised $advertised:literal, $request:path => $response:path, $($handler:ident)::+ })*) => {
        $(impl Exchange for $request {
            type Answer = $response;
        })*
    };
}

floodmark::for_each_api!(define_exchanges);

pub struct Client {
    pub stream: TcpStream,
    next_correlation_id: i32,
    /// What was sent and is not answered: correlation id, row, version.
    pending: VecDeque<(i32, &'static ApiRow, i16)>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, next_correlation_id: 1, pending: VecDeque::new() }
    }

    /// The bytes of a request, which counts as sent from now on.
    pub fn frame<R: Exchange>(&mut self, version: i16, request: &R) -> Bytes {
        let row = ApiRow::of(R::KEY).unwrap();
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        self.pending.push_back((correlation_id, row, version));
        let client_id = Some(StrBytes::from_static_str("test"));
        let rope = encode_request(row, version, correlation_id, client_id, request);
        rope.unwrap_or_else(|error| panic!("{error}")).into_bytes()
    }

    pub async fn send<R: Exchange>(&mut self, version: i16, request: &R) {
        let frame = self.frame(version, request);
        self.stream.write_all(&frame).await.unwrap();
    }

    /// The oldest request that was sent gets no answer.
    pub fn expect_no_answer(&mut self) {
        self.pending.pop_front().unwrap();
    }

    /// The answer to the oldest request.
    pub async fn receive<S: Decodable + HeaderVersion>(&mut self) -> S {
        let (correlation_id, row, version) = self.pending.pop_front().expect("a request was sent");
        let frame = self.read_frame().await;
        let frame = frame.unwrap_or_else(|| panic!("{} version {version}: connection closed", row.name));
        decode_answer(row, version, correlation_id, frame)
    }

    pub async fn call<R: Exchange>(&mut self, version: i16, request: R) -> R::Answer {
        self.send(version, &request).await;
        self.receive().await
    }

    /// A frame without its length, or `None` when the node has closed.
    pub async fn read_frame(&mut self) -> Option<Bytes> {
        let length = self.stream.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }

    /// Waits until the node closes, without having sent anything more.
    pub async fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        // A reset is a way of closing too: it comes when something that was sent had not been read.
        let _ = self.stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "an answer came before the end: {rest:?}");
    }
}

/// Takes a response out of its frame; nothing may be left over.
pub fn decode_answer<S: Decodable + HeaderVersion>(
    row: &ApiRow,
    version: i16,
    correlation_id: i32,
    mut frame: Bytes,
) -> S {
    let what = format!("{} version {version}", row.name);
    assert_eq!(frame.get_i32(), correlation_id, "{what}: answers come in the order of the requests");
    if row.response_header_version(version) == 1 {
        assert_eq!(frame.get_u8(), 0, "{what}: tagged fields of the header");
    }
    let answer: S = decode(frame.clone(), version).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut rest = frame;
    S::decode(&mut rest, version).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(rest.is_empty(), "{what}: {} bytes more than the version has", rest.len());
    answer
}

/// Encodes what the table does not have: any key, version and body.
pub fn raw_frame(key: i16, version: i16, correlation_id: i32, rest: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let length = i32::try_from(8 + rest.len()).unwrap();
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&correlation_id.to_be_bytes());
    frame.extend_from_slice(rest);
    frame
}
