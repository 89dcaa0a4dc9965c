//! Headers of requests and answers, in all their versions, and frames that are none.

use super::{FrameError, encode_request, encode_response, parse_request};
use crate::wire::api::{API_VERSIONS, ApiRow};
use crate::wire::messages::{ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse};
use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

fn frame_of(key: i16, version: i16, correlation_id: i32, rest: &[u8]) -> Bytes {
    let mut frame = Vec::new();
    frame.extend_from_slice(&key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&correlation_id.to_be_bytes());
    frame.extend_from_slice(rest);
    frame.into()
}

#[test]
fn the_header_goes_by_key_and_version() {
    // Client id "c", and a body that must be left as it is.
    let old = frame_of(3, 8, 5, b"\x00\x01cBODY");
    // The same with a tagged field of two bytes in the header.
    let new = frame_of(3, 9, 6, b"\x00\x01c\x01\x07\x02xyBODY");
    for (frame, version, correlation_id) in [(old, 8, 5), (new, 9, 6)] {
        let request = parse_request(frame).unwrap();
        assert_eq!((request.api.name, request.version), ("Metadata", version));
        assert_eq!(request.correlation_id, correlation_id);
        assert_eq!(request.client_id.as_deref(), Some("c"));
        assert_eq!(request.body, "BODY");
    }
    let anonymous = parse_request(frame_of(18, 0, 1, &[0xff, 0xff])).unwrap();
    assert_eq!(anonymous.client_id, None);
}

#[test]
fn unserved_requests_are_told_apart() {
    assert!(matches!(
        parse_request(frame_of(4, 0, 1, b"")).unwrap_err(),
        FrameError::UnknownApi { key: 4, version: 0 }
    ));
    for version in [-1, 2, 14, i16::MAX] {
        let error = parse_request(frame_of(0, version, 1, b"")).unwrap_err();
        assert!(
            matches!(error, FrameError::UnsupportedVersion { api, version: v } if api.key == 0 && v == version)
        );
    }
    for version in [-1, 99] {
        let error = parse_request(frame_of(API_VERSIONS, version, 42, b"")).unwrap_err();
        assert!(
            matches!(error, FrameError::UnsupportedApiVersions { correlation_id: 42, version: v, .. } if v == version)
        );
    }
}

#[test]
fn half_headers_are_malformed() {
    let whole = frame_of(18, 3, 1, b"\x00\x04kcat\x00");
    for len in 0..whole.len() {
        let error = parse_request(whole.slice(..len)).unwrap_err();
        assert!(matches!(error, FrameError::Malformed(_)), "{len}");
    }
    assert!(parse_request(whole).is_ok());
    assert!(
        parse_request(frame_of(18, 3, 1, b"\x00\x02\xff\xff\x00")).is_err(),
        "client id that is not UTF-8"
    );
    assert!(parse_request(frame_of(18, 3, 1, b"\xff\xfe\x00")).is_err(), "client id of length -2");
}

#[test]
fn answers_carry_the_header_of_their_version() {
    let metadata = ApiRow::of(3).unwrap();
    let response = MetadataResponse::default();
    let old = encode_response(metadata, 8, 9, &response).unwrap().into_bytes();
    let new = encode_response(metadata, 9, 9, &response).unwrap().into_bytes();
    for frame in [&old, &new] {
        assert_eq!(frame[..4], (frame.len() as i32 - 4).to_be_bytes());
        assert_eq!(frame[4..8], 9i32.to_be_bytes());
    }
    // Both go on with the throttle time; the flexible header has an empty list of tagged fields before it.
    assert_eq!((&old[8..12], &new[8..13]), (&[0; 4][..], &[0; 5][..]));
    assert_eq!(old[12..16], [0; 4], "brokers");
    assert_eq!(new[13], 1, "brokers");

    let api_versions = ApiRow::of(API_VERSIONS).unwrap();
    let error = ApiVersionsResponse { error_code: 0x1234, ..ApiVersionsResponse::default() };
    for version in api_versions.min..=api_versions.max {
        let frame = encode_response(api_versions, version, 9, &error).unwrap().into_bytes();
        assert_eq!(frame[8..10], [0x12, 0x34], "version {version} has no tagged fields in the header");
    }
}

#[test]
fn a_value_that_the_version_lacks_is_an_error() {
    let metadata = ApiRow::of(3).unwrap();
    let request = MetadataRequest::default().with_include_topic_authorized_operations(true);
    let error = encode_request(metadata, 0, 1, None, &request).unwrap_err();
    assert!(error.to_string().starts_with("cannot encode Metadata version 0: "), "{error}");
}

#[test]
fn requests_that_we_send_are_requests_that_we_read() {
    let api = ApiRow::of(API_VERSIONS).unwrap();
    let client = Some(StrBytes::from_static_str("floodmark"));
    for version in api.min..=api.max {
        let frame = encode_request(api, version, 3, client.clone(), &ApiVersionsRequest::default());
        let request = parse_request(frame.unwrap().into_bytes().slice(4..)).unwrap();
        assert_eq!(
            (request.version, request.correlation_id, request.client_id),
            (version, 3, client.clone())
        );
    }
}
