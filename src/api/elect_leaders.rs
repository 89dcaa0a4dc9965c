//! ElectLeaders: v0-2 (KIP-183, KIP-460)
//!
//! Behaviour: elects the preferred leaders of partitions, or any replica as leader of those that have none (an unclean
//! election): of those that live the one whose log reaches farthest, which is asked for first. A null list is all partitions, of which only those are told that needed an election.
//!
//! Version notes: 0 knows preferred leaders only, and has no error for the request as a whole.

use std::time::Duration;

use super::refusal::Refusal;
use super::topic_view::{text, topic_name};
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::elect_leaders::{ElectionType, elect_leaders};
use crate::metadata::unclean::{LogEnds, candidates_of};
use crate::types::{ErrorCode, PartitionIndex, TopicPartition};
use crate::wire::messages::ElectLeadersRequest;
use crate::wire::messages::elect_leaders_response::{
    ElectLeadersResponse, PartitionResult, ReplicaElectionResult,
};

pub async fn handle(api: &Api, _: &Call, request: Request<ElectLeadersRequest>) -> ElectLeadersResponse {
    let (version, request) = (request.version, request.body);
    let partitions = request.topic_partitions.as_ref().map(|topics| {
        let of_topic = topics.iter().map(|topic| (&topic.topic, &topic.partitions));
        of_topic
            .flat_map(|(topic, indexes)| indexes.iter().map(|index| at(topic, *index)))
            .collect::<Vec<_>>()
    });
    if request.topic_partitions.as_ref().is_some_and(Vec::is_empty) {
        return ElectLeadersResponse::default();
    }
    let election = match request.election_type {
        0 => ElectionType::Preferred,
        1 => ElectionType::Unclean,
        other => {
            let message = format!("election type {other} is not known");
            return refused(version, partitions, &Refusal::new(ErrorCode::InvalidRequest, message));
        }
    };
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let image = api.metadata.image();
    let defaults = api.config.at(&image).election_defaults();
    let asked = partitions.clone();
    let ends = match election {
        ElectionType::Preferred => LogEnds::new(),
        ElectionType::Unclean => {
            let candidates = candidates_of(&image, partitions.as_deref(), defaults);
            api.active.log_ends(&image, &candidates).await
        }
    };
    let decide = move |image: &Image| elect_leaders(image, election, asked.as_deref(), &ends, defaults);
    let decided = api.metadata.run_within(timeout, decide).await.map_err(Refusal::from);
    match decided.and_then(|outcomes| outcomes.map_err(Refusal::from)) {
        Ok(outcomes) => {
            let outcomes = outcomes.into_iter();
            let outcomes = outcomes.map(|(at, outcome)| (at, outcome.map_err(Refusal::from).err()));
            ElectLeadersResponse::default().with_replica_election_results(results(outcomes))
        }
        Err(refusal) => refused(version, partitions, &refusal),
    }
}

fn at(topic: &str, index: i32) -> TopicPartition {
    TopicPartition { topic: topic.into(), partition: PartitionIndex(index) }
}

/// The same error for everything.
fn refused(version: i16, partitions: Option<Vec<TopicPartition>>, refusal: &Refusal) -> ElectLeadersResponse {
    let code = refusal.code.code();
    let each = partitions.unwrap_or_default().into_iter().map(|at| (at, Some(refusal.clone())));
    let response = ElectLeadersResponse::default().with_replica_election_results(results(each));
    if version >= 1 { response.with_error_code(code) } else { response }
}

/// Partitions that follow each other and are of one topic are told together.
fn results(outcomes: impl Iterator<Item = (TopicPartition, Option<Refusal>)>) -> Vec<ReplicaElectionResult> {
    let mut results: Vec<ReplicaElectionResult> = Vec::new();
    for (at, refusal) in outcomes {
        let result = PartitionResult::default().with_partition_id(at.partition.0);
        let result = match refusal {
            None => result.with_error_message(None),
            Some(refusal) => {
                result.with_error_code(refusal.code.code()).with_error_message(Some(text(&refusal.message)))
            }
        };
        match results.last_mut() {
            Some(last) if last.topic.as_str() == &*at.topic => last.partition_result.push(result),
            _ => results.push(
                ReplicaElectionResult::default()
                    .with_topic(topic_name(&at.topic))
                    .with_partition_result(vec![result]),
            ),
        }
    }
    results
}
