//! Every record at every version against the bytes and the JSON of Kafka 4.4's own classes
//! (`tests/metadata/records.txt`: name, version, bytes, JSON; once with defaults and once with all fields set).

use crate::metadata::record::{Record, RecordError};
use bytes::Bytes;
use std::collections::BTreeSet;

const RECORDS: &str = include_str!("../../../tests/metadata/records.txt");

fn from_hex(text: &str) -> Bytes {
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal digits")
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

#[test]
fn records_are_kafkas_byte_for_byte() {
    let mut seen = BTreeSet::new();
    for line in RECORDS.lines() {
        let fields: Vec<&str> = line.splitn(4, ' ').collect();
        let [name, version, hex, json] = fields[..] else { panic!("four fields: {line}") };
        let bytes = from_hex(hex);
        let (record, read_version) = Record::decode(bytes.clone()).unwrap();
        assert_eq!((record.name(), read_version.to_string().as_str()), (name, version));
        assert_eq!(record.encode_at(read_version).unwrap(), bytes, "{line}");
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(record.fields_as_json(read_version).unwrap(), json, "{line}");
        seen.insert(record.record_type());
        for cut in 0..bytes.len() {
            assert!(Record::decode(bytes.slice(..cut)).is_err(), "{line} cut at {cut}");
        }
    }
    assert_eq!(seen.len(), 27);
}

#[test]
fn foreign_frames_are_refused() {
    let decode = |hex| Record::decode(from_hex(hex)).map_err(|error| error.to_string());
    let error = |text: &str| Err(text.to_owned());
    assert_eq!(decode("00140000"), error("frame version 0 of a metadata record is not known"));
    assert_eq!(decode("016300"), error("metadata record type 99 is not known"));
    assert_eq!(decode("01140500"), error("NoOpRecord version 5 is not known"));
    assert_eq!(decode("0114000000"), error("1 bytes follow a metadata record"));
    assert!(matches!(Record::decode(Bytes::new()), Err(RecordError::Malformed(_))));
}
