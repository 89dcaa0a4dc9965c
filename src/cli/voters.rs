//! The voters of a dynamic quorum (KIP-853): as `--initial-controllers` names them, and as Kafka's snapshots hold them.
//!
//! Knows no files. Invariant: a set of voters that is made here is not empty, and each has the id of its directory.

use std::collections::BTreeMap;

use crate::config::{HostPort, NodeConfig};
use crate::controller::{Endpoint, Member};
use crate::metadata::features::{Feature, KRAFT_VERSION};
use crate::types::{DirectoryId, NodeId, kafka_uuid};
use crate::wire::messages::StrBytes;
use crate::wire::messages::snapshot::{
    SnapshotVoter, SnapshotVoterEndpoint, SnapshotVoterFeature, VotersRecord,
};

/// The voters by node id.
pub type Voters = BTreeMap<NodeId, Member>;

/// Why a text names no set of voters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseVotersError {
    #[error("no voters are named")]
    Empty,
    #[error("'{0}' is not of the form ID@HOST:PORT:DIRECTORY-ID")]
    Form(String),
    #[error("'{0}': the node id must be a whole number from 0 on")]
    Node(String),
    #[error("'{voter}' is not of the form ID@HOST:PORT:DIRECTORY-ID: {reason}")]
    Address { voter: String, reason: String },
    #[error("'{0}': the directory id must be 22 letters, as 'floodmark storage random-uuid' prints them")]
    Directory(String),
    #[error("node {0} is named twice")]
    Twice(NodeId),
}

/// Reads `ID@HOST:PORT:DIRECTORY-ID,...`; an IPv6 address stands in brackets. `listener` is how the voters name the listener
/// at these addresses.
pub fn parse(text: &str, listener: &str) -> Result<Voters, ParseVotersError> {
    let mut voters = Voters::new();
    for voter in text.split(',').map(str::trim).filter(|voter| !voter.is_empty()) {
        let (node, member) = parse_one(voter, listener)?;
        if voters.insert(node, member).is_some() {
            return Err(ParseVotersError::Twice(node));
        }
    }
    if voters.is_empty() { Err(ParseVotersError::Empty) } else { Ok(voters) }
}

fn parse_one(voter: &str, listener: &str) -> Result<(NodeId, Member), ParseVotersError> {
    let form = || ParseVotersError::Form(voter.to_owned());
    let (node, rest) = voter.split_once('@').ok_or_else(form)?;
    let (address, directory) = rest.rsplit_once(':').ok_or_else(form)?;
    let node = node.parse::<i32>().ok().filter(|node| *node >= 0);
    let node = node.map(NodeId).ok_or_else(|| ParseVotersError::Node(voter.to_owned()))?;
    let address = HostPort::parse(address)
        .map_err(|reason| ParseVotersError::Address { voter: voter.to_owned(), reason })?;
    // The reserved ids stand for no directory, or for one that is not known (KIP-858).
    let directory_id = kafka_uuid::parse(directory).filter(|id| id.as_u128() >= 100);
    let directory_id = directory_id.ok_or_else(|| ParseVotersError::Directory(voter.to_owned()))?;
    let endpoint = Endpoint { listener: listener.to_owned(), host: address.host, port: address.port };
    Ok((node, Member { directory_id, endpoints: vec![endpoint] }))
}

/// The node as the only voter, at its own controller listener; one that has none is reached by nobody.
pub fn standalone(node: &NodeConfig, directory_id: DirectoryId) -> Voters {
    let own = node.advertised_controller_listeners.first().map(|listener| {
        let host = listener.host.clone().filter(|host| host != "0.0.0.0");
        let host = host.unwrap_or_else(|| "localhost".to_owned());
        Endpoint { listener: listener.name.as_str().to_owned(), host, port: listener.port }
    });
    [(node.node_id, Member { directory_id, endpoints: own.into_iter().collect() })].into()
}

/// The record of these voters in a snapshot.
pub fn to_record(voters: &Voters) -> VotersRecord {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let max_level = Feature::named(KRAFT_VERSION).map_or(0, Feature::max_level);
    let supported =
        SnapshotVoterFeature { max_supported_version: max_level, ..SnapshotVoterFeature::default() };
    let endpoint = |endpoint: &Endpoint| SnapshotVoterEndpoint {
        name: text(&endpoint.listener),
        host: text(&endpoint.host),
        port: endpoint.port,
        ..SnapshotVoterEndpoint::default()
    };
    let voter = |(node, member): (&NodeId, &Member)| SnapshotVoter {
        voter_id: node.0,
        voter_directory_id: member.directory_id,
        endpoints: member.endpoints.iter().map(endpoint).collect(),
        k_raft_version_feature: supported.clone(),
        ..SnapshotVoter::default()
    };
    VotersRecord { voters: voters.iter().map(voter).collect(), ..VotersRecord::default() }
}

/// The voters of a record.
pub fn of_record(record: &VotersRecord) -> Voters {
    let endpoint = |endpoint: &SnapshotVoterEndpoint| Endpoint {
        listener: endpoint.name.to_string(),
        host: endpoint.host.to_string(),
        port: endpoint.port,
    };
    let voter = |voter: &SnapshotVoter| {
        let endpoints = voter.endpoints.iter().map(endpoint).collect();
        (NodeId(voter.voter_id), Member { directory_id: voter.voter_directory_id, endpoints })
    };
    record.voters.iter().map(voter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "MvDxzVmcRsaTz33bUuRU6A";
    const TWO: &str = "JEXY6aqzQY-32P5TStzaFg";

    #[test]
    fn voters_are_read_as_kafka_reads_them() {
        let text = format!(" 1@h.example:9093:{ONE}, ,2@[::1]:0:{TWO},");
        let voters = parse(&text, "CONTROLLER").unwrap();
        let shown: Vec<_> = voters
            .iter()
            .map(|(node, member)| {
                let Endpoint { listener, host, port } = &member.endpoints[0];
                format!("{node} {listener}://{host}:{port} {}", kafka_uuid::format(member.directory_id))
            })
            .collect();
        assert_eq!(
            shown,
            [format!("1 CONTROLLER://h.example:9093 {ONE}"), format!("2 CONTROLLER://::1:0 {TWO}")]
        );
        assert_eq!(of_record(&to_record(&voters)), voters);
    }

    #[test]
    fn what_names_no_voters_is_refused() {
        let wrong = |text: &str| parse(text, "CONTROLLER").unwrap_err().to_string();
        for (text, words) in [
            (String::new(), "no voters"),
            (" , ".into(), "no voters"),
            (format!("h:1:{ONE}"), "form"),
            ("1@h".into(), "form"),
            (format!("@h:1:{ONE}"), "node id"),
            (format!("-1@h:1:{ONE}"), "node id"),
            (format!("x@h:1:{ONE}"), "node id"),
            (format!("1@h:{ONE}"), "host:port"),
            (format!("1@:1:{ONE}"), "no host"),
            (format!("1@[::1:1:{ONE}"), "host:port"),
            (format!("1@h:65536:{ONE}"), "host:port"),
            ("1@h:1:short".into(), "directory id"),
            ("1@h:1:AAAAAAAAAAAAAAAAAAAAAA".into(), "directory id"),
            (format!("1@h:1:{ONE},1@h:2:{TWO}"), "twice"),
        ] {
            let told = wrong(&text);
            assert!(told.contains(words), "'{text}': {told}");
        }
    }
}
