//! Every golden message survives decoding and encoding.

use bytes::BytesMut;
use floodmark::wire::api::{API_TABLE, ApiRow};
use floodmark::wire::frame::decode;
use floodmark::wire::messages::codec::{self, Schema};
use floodmark::wire::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, ApiVersionsRequest, ApiVersionsResponse,
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, DescribeLogDirsRequest, DescribeLogDirsResponse,
    FetchResponse, ListOffsetsRequest, ListOffsetsResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
    UnregisterControllerRequest, UnregisterControllerResponse, WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable};
use serde_json::Value as Json;
use std::fmt::Debug;
use std::fs;

use super::files::{REGENERATE, VARIANTS, bytes, directory, read};

/// Something to do with the type of every message in every version.
pub trait Check {
    fn check<T: Decodable + Encodable + Debug>(row: &ApiRow, version: i16, kind: &str);
}

macro_rules! define_check_all {
    ($({ $key:literal, $name:ident, $min:literal..=$max:literal, flexible $flexible:tt, [$($listener:ident),+],
         advertised $advertised:literal, $request:path => $response:path, $($handler:ident)::+ })*) => {
        pub fn check_all<C: Check>() {
            $(for version in $min..=$max {
                let row = ApiRow::of($key).unwrap();
                C::check::<$request>(row, version, "request");
                C::check::<$response>(row, version, "response");
            })*
        }
    };
}

floodmark::for_each_api!(define_check_all);

struct RoundTrip;

impl Check for RoundTrip {
    fn check<T: Decodable + Encodable + Debug>(row: &ApiRow, version: i16, kind: &str) {
        for variant in VARIANTS {
            let what = format!("{} {kind} version {version}{variant}", row.name);
            let golden = bytes(row, version, kind, variant);
            let message: T =
                decode(golden.clone(), version).unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut encoded = BytesMut::new();
            message.encode(&mut encoded, version).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(encoded, golden, "{what}: {message:?}");
            assert_eq!(message.compute_size(version).unwrap(), golden.len(), "{what}");

            // Fields that a newer Kafka added under a tag would come back unchanged without being known.
            let text = format!("{message:?}");
            for tags in text.split("unknown_tagged_fields: {").skip(1) {
                let known = tags.starts_with('}') || tags.starts_with("10000: ");
                assert!(known, "{what} has a field that the type lacks: {tags}");
            }
        }
    }
}

#[test]
fn every_message_is_encoded_as_kafka_encodes_it() {
    check_all::<RoundTrip>();
}

#[test]
fn the_generator_knows_every_api_of_the_table() {
    let mut keys: Vec<i16> = API_TABLE.iter().filter(|row| row.is_told()).map(|row| row.key).collect();
    keys.sort_unstable();
    let keys: String = keys.iter().map(|key| format!("{key}\n")).collect();
    let listed = fs::read_to_string(directory().join("keys.txt")).unwrap();
    assert_eq!(listed, keys, "write the keys of the table to tests/wire/keys.txt and {REGENERATE}");
}

/// Kafka's converters print records as their size, and tagged fields that a message does not have not at all.
fn without_records(json: &mut Json) {
    match json {
        Json::Object(fields) => {
            fields.remove("records");
            fields.remove("recordsSizeInBytes");
            fields.values_mut().for_each(without_records);
        }
        Json::Array(items) => items.iter_mut().for_each(without_records),
        _ => {}
    }
}

fn compare_json<T: Schema + Decodable>(kind: &str) {
    let row = ApiRow::of(T::KEY).unwrap();
    for version in row.min..=row.max {
        for variant in VARIANTS {
            let message: T = decode(bytes(row, version, kind, variant), version).unwrap();
            let mut ours = codec::to_json(&message, version).unwrap();
            let mut kafkas: Json = serde_json::from_str(&read(row, version, kind, variant, "json")).unwrap();
            without_records(&mut ours);
            without_records(&mut kafkas);
            assert_eq!(ours, kafkas, "{} {kind} version {version}{variant}", row.name);
        }
    }
}

/// Bytes that come back unchanged could still be in the wrong fields; for our own messages the snapshots tell.
#[test]
fn our_own_messages_mean_what_kafka_means() {
    compare_json::<ListOffsetsRequest>("request");
    compare_json::<ListOffsetsResponse>("response");
    compare_json::<DescribeLogDirsRequest>("request");
    compare_json::<DescribeLogDirsResponse>("response");
    compare_json::<ApiVersionsRequest>("request");
    compare_json::<ApiVersionsResponse>("response");
    compare_json::<FetchResponse>("response");
    compare_json::<BrokerHeartbeatRequest>("request");
    compare_json::<BrokerHeartbeatResponse>("response");
    compare_json::<UnregisterControllerRequest>("request");
    compare_json::<UnregisterControllerResponse>("response");
    compare_json::<TxnOffsetCommitRequest>("request");
    compare_json::<TxnOffsetCommitResponse>("response");
    compare_json::<WriteTxnMarkersRequest>("request");
    compare_json::<WriteTxnMarkersResponse>("response");
    compare_json::<AddRaftVoterRequest>("request");
    compare_json::<AddRaftVoterResponse>("response");
}
