//! Connections against a peer that a test plays: pipelining, answers out of order, versions, and every way to fail.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::protocol::{Encodable, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Address, CallError, Connection, DialError};
use crate::wire::api::ApiRow;
use crate::wire::frame::{RequestFrame, encode_response, parse_request};
use crate::wire::messages::api_versions_response::ApiVersion;
use crate::wire::messages::{
    ApiVersionsResponse, CreateTopicsRequest, DescribeClusterRequest, DescribeClusterResponse,
};

/// Longer than any test may take, so that no outcome depends on it.
const LONG: Duration = Duration::from_secs(3600);
const DESCRIBE_CLUSTER: i16 = 60;

async fn listen() -> (TcpListener, Address) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, Address { host: "localhost".to_owned(), port })
}

async fn read_request(stream: &mut TcpStream) -> Option<RequestFrame> {
    let len = stream.read_i32().await.ok()?;
    let mut frame = vec![0; usize::try_from(len).unwrap()];
    stream.read_exact(&mut frame).await.ok()?;
    Some(parse_request(Bytes::from(frame)).unwrap())
}

async fn answer<T: Encodable + 'static>(stream: &mut TcpStream, to: &RequestFrame, response: &T) {
    let frame = encode_response(to.api, to.version, to.correlation_id, response).unwrap();
    stream.write_all(&frame.into_bytes()).await.unwrap();
}

/// Takes a connection and tells that DescribeCluster is served in these versions, and nothing else.
async fn accept(listener: &TcpListener, versions: (i16, i16)) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let request = read_request(&mut stream).await.unwrap();
    let api = ApiVersion {
        api_key: DESCRIBE_CLUSTER,
        min_version: versions.0,
        max_version: versions.1,
        ..ApiVersion::default()
    };
    answer(&mut stream, &request, &ApiVersionsResponse { api_keys: vec![api], ..Default::default() }).await;
    stream
}

async fn connected(versions: (i16, i16)) -> (Connection, TcpStream) {
    let (listener, address) = listen().await;
    let (connection, stream) =
        tokio::join!(Connection::open(&address, "test", LONG), accept(&listener, versions));
    (connection.unwrap(), stream)
}

fn named(id: &str) -> DescribeClusterResponse {
    DescribeClusterResponse::default().with_cluster_id(StrBytes::from_string(id.to_owned()))
}

#[tokio::test]
async fn answers_find_their_callers_in_any_order() {
    let (connection, mut peer) = connected((0, 1)).await;
    let request = DescribeClusterRequest::default();
    let calls =
        async { tokio::join!(connection.call(&request, LONG), connection.call_at(0, &request, LONG)) };
    let served = async {
        let first = read_request(&mut peer).await.unwrap();
        let second = read_request(&mut peer).await.unwrap();
        assert_eq!(
            (first.version, second.version),
            (1, 0),
            "the highest that both know, and what was asked for"
        );
        assert_eq!(first.client_id.as_deref(), Some("test"));
        answer(&mut peer, &second, &named("second")).await;
        answer(&mut peer, &first, &named("first")).await;
    };
    let ((first, second), ()) = tokio::join!(calls, served);
    assert_eq!(first.unwrap().cluster_id, named("first").cluster_id);
    assert_eq!(second.unwrap().cluster_id, named("second").cluster_id);
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn what_the_peer_does_not_serve_is_not_sent() {
    for versions in [(5, 9), (-3, -1)] {
        let (connection, _peer) = connected(versions).await;
        let error = connection.call(&DescribeClusterRequest::default(), LONG).await.unwrap_err();
        assert!(matches!(error, CallError::NotServed), "{error}");
        let error = connection.call(&CreateTopicsRequest::default(), LONG).await.unwrap_err();
        assert!(matches!(error, CallError::NotServed), "{error}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_heard_of_by_all() {
    let (connection, mut peer) = connected((0, 2)).await;
    let request = DescribeClusterRequest::default();
    let calls = async { tokio::join!(connection.call(&request, LONG), connection.call(&request, LONG)) };
    let broken = async {
        read_request(&mut peer).await.unwrap();
        drop(peer);
    };
    let ((first, second), ()) = tokio::join!(calls, broken);
    assert!(matches!(first, Err(CallError::Disconnected)));
    assert!(matches!(second, Err(CallError::Disconnected)));
    connection.closed().await;
    assert!(matches!(connection.call(&request, LONG).await, Err(CallError::Disconnected)));
}

#[tokio::test]
async fn a_late_answer_disturbs_nobody() {
    let (connection, mut peer) = connected((0, 2)).await;
    let request = DescribeClusterRequest::default();
    assert!(matches!(connection.call(&request, Duration::from_millis(1)).await, Err(CallError::Timeout)));
    let served = async {
        let mut last = read_request(&mut peer).await.unwrap();
        // The first request may have been dropped before it was written.
        while last.correlation_id == 1 {
            answer(&mut peer, &last, &named("late")).await;
            last = read_request(&mut peer).await.unwrap();
        }
        answer(&mut peer, &last, &named("good")).await;
    };
    let (good, ()) = tokio::join!(connection.call(&request, LONG), served);
    assert_eq!(good.unwrap().cluster_id, named("good").cluster_id);
}

#[tokio::test]
async fn answers_that_are_none_end_the_call_or_the_connection() {
    let request = DescribeClusterRequest::default();
    // A body that is cut short harms its call only.
    let (connection, mut peer) = connected((0, 0)).await;
    let served = async {
        let asked = read_request(&mut peer).await.unwrap();
        let mut frame = 6i32.to_be_bytes().to_vec();
        frame.extend_from_slice(&asked.correlation_id.to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        peer.write_all(&frame).await.unwrap();
    };
    let (short, ()) = tokio::join!(connection.call(&request, LONG), served);
    assert!(matches!(short, Err(CallError::Malformed(_))), "{short:?}");
    assert!(!connection.is_closed());
    // Lengths that no answer has leave nothing to read on from.
    for length in [-1i32, i32::MAX, 3] {
        let (connection, mut peer) = connected((0, 0)).await;
        let served = async {
            read_request(&mut peer).await.unwrap();
            peer.write_all(&length.to_be_bytes()).await.unwrap();
            peer.write_all(&[0; 3]).await.unwrap();
            connection.closed().await;
        };
        let (broken, ()) = tokio::join!(connection.call(&request, LONG), served);
        assert!(matches!(broken, Err(CallError::Disconnected)), "{length}: {broken:?}");
    }
}

#[tokio::test]
async fn a_dial_tells_a_dead_process_from_a_silent_one() {
    let (listener, address) = listen().await;
    let silent = Connection::open(&address, "test", Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(silent, DialError::Timeout(_)), "{silent}");
    drop(listener);
    let dead = Connection::open(&address, "test", LONG).await.unwrap_err();
    assert!(matches!(dead, DialError::Refused(_)), "{dead}");
    let unknown = Address { host: "name.invalid".to_owned(), port: 1 };
    let unknown = Connection::open(&unknown, "test", LONG).await.unwrap_err();
    assert!(matches!(unknown, DialError::Other(..)), "{unknown}");
    assert_eq!(Address { host: "::1".to_owned(), port: 9 }.to_string(), "[::1]:9");
}

#[tokio::test]
async fn the_socket_closes_with_the_last_handle() {
    let (connection, mut peer) = connected((0, 2)).await;
    let other = connection.clone();
    drop(connection);
    assert!(!other.is_closed());
    drop(other);
    assert!(read_request(&mut peer).await.is_none());
    assert!(ApiRow::of(DESCRIBE_CLUSTER).is_some());
}

#[tokio::test]
async fn what_is_asked_on_a_connection_that_is_given_up_is_taken_back() {
    let (listener, address) = listen().await;
    for has_answer in [true, false] {
        let (mut peer, connection) =
            tokio::join!(accept(&listener, (0, 2)), Connection::open(&address, "test", LONG));
        let connection = connection.unwrap();
        let request = DescribeClusterRequest::default();
        let asked = tokio::spawn({
            let connection = connection.clone();
            async move { connection.call(&request, LONG).await.is_ok() }
        });
        let asked_for = read_request(&mut peer).await.unwrap();
        if has_answer {
            answer(&mut peer, &asked_for, &DescribeClusterResponse::default()).await;
            assert!(asked.await.unwrap());
        } else {
            asked.abort();
            assert!(asked.await.unwrap_err().is_cancelled());
        }
        drop(connection);
        // A reset has the system forget what it has not sent.
        let ended = peer.read(&mut [0; 16]).await.map_err(|error| error.kind());
        let expected = if has_answer { Ok(0) } else { Err(std::io::ErrorKind::ConnectionReset) };
        assert_eq!(ended, expected);
    }
}
