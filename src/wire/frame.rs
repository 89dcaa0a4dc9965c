//! Frames: what stands between the length that precedes a message on a connection and the message itself. Request
//! headers are parsed and answers are framed here, by the rules of `wire::api`; bodies are decoded by `wire::guard`.
//!
//! Knows no sockets, and does not decide what becomes of a connection whose frame it refuses.
//!
//! Invariant: a frame that `parse_request` accepts names an API and a version that the table serves.

use bytes::{Buf, BufMut, Bytes};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Encodable, StrBytes};

use super::api::{API_VERSIONS, ApiRow};
use super::guard;
use super::rope::{Rope, RopeWriter};

pub use super::guard::{DecodeError, decode};

/// A request whose header is read and whose body is not.
#[derive(Clone, Debug)]
pub struct RequestFrame {
    pub api: &'static ApiRow,
    pub version: i16,
    pub correlation_id: i32,
    pub client_id: Option<StrBytes>,
    pub body: Bytes,
}

/// Why a frame is not a request that can be served.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("malformed request header: {0}")]
    Malformed(#[source] DecodeError),
    #[error("request with unknown API key {key} (version {version})")]
    UnknownApi { key: i16, version: i16 },
    #[error("{} request with unsupported version {version}", .api.name)]
    UnsupportedVersion { api: &'static ApiRow, version: i16 },
    /// ApiVersions alone is answered when its version is unknown: with version 0 and UNSUPPORTED_VERSION (KIP-511).
    #[error("ApiVersions request with unsupported version {version}")]
    UnsupportedApiVersions { api: &'static ApiRow, version: i16, correlation_id: i32 },
}

/// Why a message could not be encoded: a value that the version cannot carry.
#[derive(Debug, thiserror::Error)]
#[error("cannot encode {api} version {version}: {reason}")]
pub struct EncodeError {
    api: &'static str,
    version: i16,
    reason: String,
}

/// Key, version and correlation id, which every version of the header begins with.
const FIXED_HEADER_LEN: usize = 8;

/// Reads the header of a request. `frame` is what follows the length on the connection.
pub fn parse_request(frame: Bytes) -> Result<RequestFrame, FrameError> {
    let mut body = frame;
    if body.len() < FIXED_HEADER_LEN {
        return Err(FrameError::Malformed(DecodeError::new("shorter than a header")));
    }
    let mut fixed = &body[..FIXED_HEADER_LEN];
    let (key, version, correlation_id) = (fixed.get_i16(), fixed.get_i16(), fixed.get_i32());
    let Some(api) = ApiRow::of(key) else {
        return Err(FrameError::UnknownApi { key, version });
    };
    if !api.serves(version) {
        return Err(match key {
            API_VERSIONS => FrameError::UnsupportedApiVersions { api, version, correlation_id },
            _ => FrameError::UnsupportedVersion { api, version },
        });
    }
    let header: RequestHeader =
        guard::decode_front(&mut body, api.request_header_version(version)).map_err(FrameError::Malformed)?;
    Ok(RequestFrame { api, version, correlation_id, client_id: header.client_id, body })
}

/// A whole answer, from its length on.
pub fn encode_response<T: Encodable + 'static>(
    api: &'static ApiRow,
    version: i16,
    correlation_id: i32,
    response: &T,
) -> Result<Rope, EncodeError> {
    let header = ResponseHeader::default().with_correlation_id(correlation_id);
    encode_frame(api, version, &header, api.response_header_version(version), response)
}

/// A whole request, from its length on: for connections that this broker opens, and for tests.
pub fn encode_request<T: Encodable + 'static>(
    api: &'static ApiRow,
    version: i16,
    correlation_id: i32,
    client_id: Option<StrBytes>,
    request: &T,
) -> Result<Rope, EncodeError> {
    let header = RequestHeader::default()
        .with_request_api_key(api.key)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(client_id);
    encode_frame(api, version, &header, api.request_header_version(version), request)
}

/// Reads the header of an answer: the correlation id, and the body. `frame` is what follows the length on the connection.
pub fn parse_response(api: &'static ApiRow, version: i16, frame: Bytes) -> Result<(i32, Bytes), DecodeError> {
    let mut body = frame;
    let header: ResponseHeader = guard::decode_front(&mut body, api.response_header_version(version))?;
    Ok((header.correlation_id, body))
}

fn encode_frame<T: Encodable + 'static>(
    api: &'static ApiRow,
    version: i16,
    header: &impl Encodable,
    header_version: i16,
    message: &T,
) -> Result<Rope, EncodeError> {
    let mut writer = RopeWriter::new(super::payload::of(message));
    // The length is known when all is written.
    writer.put_i32(0);
    header
        .encode(&mut writer, header_version)
        .and_then(|()| message.encode(&mut writer, version))
        .map_err(|error| EncodeError { api: api.name, version, reason: error.to_string() })?;
    writer.finish_frame().ok_or_else(|| EncodeError {
        api: api.name,
        version,
        reason: "message too long for a frame".to_owned(),
    })
}

#[cfg(test)]
mod tests;
