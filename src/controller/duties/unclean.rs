//! Unclean elections while this node leads: as soon as a partition has no leader and its topic allows any, the replicas that
//! live are asked how far their logs reach, and the best one is elected. Which are due, and who wins, is decided in
//! `metadata::unclean`.
//!
//! Invariant: nobody is waited for longer than `ASK_LIMIT`, and without any answer there is still an election.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::{ActiveController, DutyError, Inner};
use crate::metadata::Image;
use crate::metadata::unclean::{Candidates, Leaderless, LogEnd, LogEnds, elect_unclean_leaders};
use crate::peer::{CallError, Connection, DialError};
use crate::types::{LeaderEpoch, NodeId, Offset, PartitionIndex, TopicIdPartition};
use crate::wire::messages::ReplicaEndsRequest;
use crate::wire::messages::replica_ends::{ReplicaEnd, ReplicaEndsTopic};

/// How long replicas may take to say how far their logs reach: the partition has no leader meanwhile.
const ASK_LIMIT: Duration = Duration::from_millis(800);
/// The most elections that one decision holds.
const MAX_ELECTIONS: usize = 1_000;
/// Before elections that could not be held are tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const CLIENT_ID: &str = "floodmark-unclean-election";

/// Does its work until the quorum's member has ended.
pub(super) async fn run(controller: ActiveController) {
    let mut office = controller.inner.office.clone();
    while office.begins().await {
        tokio::select! {
            () = office.ends() => {}
            () = look_after(&controller) => {}
        }
    }
}

/// Holds the elections that are due, in one term.
async fn look_after(controller: &ActiveController) {
    let inner = &controller.inner;
    let mut images = inner.metadata.subscribe();
    let mut leaderless = Leaderless::default();
    loop {
        let image = images.borrow_and_update().clone();
        leaderless.follow(&image);
        let due = leaderless.due(&image, (inner.settings)(&image).defaults);
        // What is due in spite of an election waits for somebody to live again. The interval is for what nobody told.
        let mut pause = inner.settings_now().unclean_interval;
        for due in due.chunks(MAX_ELECTIONS) {
            match elect(controller, &image, due).await {
                Ok(()) | Err(DutyError::NotController) => {}
                Err(DutyError::Metadata(error)) => {
                    tracing::warn!("Unclean elections that were due could not be held: {error}");
                    pause = RETRY_PAUSE;
                }
                Err(DutyError::Refused(never)) => match never {},
            }
        }
        tokio::select! {
            changed = images.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause), if !due.is_empty() => {}
        }
    }
}

async fn elect(
    controller: &ActiveController,
    image: &Image,
    due: &[Candidates],
) -> Result<(), DutyError<Infallible>> {
    let ends = controller.log_ends(image, due).await;
    for Candidates { partition: at, replicas } in due {
        let known = ends.get(at).map_or(0, BTreeMap::len);
        let topic =
            image.topics.by_id(at.topic_id).map_or_else(|| at.topic_id.to_string(), |it| it.name.to_string());
        tracing::warn!(
            "{topic}-{} gets a leader that may lack what was committed: {known} of {} live replicas have said how far \
             their logs reach",
            at.partition,
            replicas.len()
        );
    }
    let partitions: Vec<TopicIdPartition> = due.iter().map(|due| due.partition).collect();
    let settings = Arc::clone(&controller.inner.settings);
    controller
        .run(move |image| {
            let partitions = partitions.iter().copied();
            elect_unclean_leaders(image, partitions, &ends, settings(image).defaults).map(Ok)
        })
        .await
}

impl ActiveController {
    /// Asks replicas how far their logs reach. Whoever does not answer in time is not waited for.
    pub async fn log_ends(&self, image: &Image, candidates: &[Candidates]) -> LogEnds {
        let mut by_node: BTreeMap<NodeId, Vec<TopicIdPartition>> = BTreeMap::new();
        for Candidates { partition, replicas } in candidates {
            for replica in replicas {
                by_node.entry(*replica).or_default().push(*partition);
            }
        }
        let asked = by_node.iter().map(|(node, partitions)| ask(&self.inner, image, *node, partitions));
        let mut ends = LogEnds::new();
        for (node, partition, end) in join_all(asked).await.into_iter().flatten() {
            ends.entry(partition).or_default().insert(node, end);
        }
        ends
    }
}

async fn ask(
    inner: &Inner,
    image: &Image,
    node: NodeId,
    partitions: &[TopicIdPartition],
) -> Vec<(NodeId, TopicIdPartition, LogEnd)> {
    let Some(address) = super::watch::address(inner, image, node) else { return Vec::new() };
    let mut topics: Vec<ReplicaEndsTopic> = Vec::new();
    for at in partitions {
        match topics.last_mut() {
            Some(last) if last.topic_id == at.topic_id => last.partitions.push(at.partition.0),
            _ => topics.push(ReplicaEndsTopic {
                topic_id: at.topic_id,
                partitions: vec![at.partition.0],
                ..ReplicaEndsTopic::default()
            }),
        }
    }
    let request = ReplicaEndsRequest { topics, ..ReplicaEndsRequest::default() };
    let asked = async {
        let connection = Connection::open(&address, CLIENT_ID, ASK_LIMIT).await?;
        Ok::<_, AskError>(connection.call(&request, ASK_LIMIT).await?)
    };
    let answer = match tokio::time::timeout(ASK_LIMIT, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::warn!("Broker {node} does not say how far its logs reach: {error}");
            return Vec::new();
        }
        Err(_) => {
            tracing::warn!("Broker {node} does not say in time how far its logs reach");
            return Vec::new();
        }
    };
    let end = |told: &ReplicaEnd| {
        let partition =
            TopicIdPartition { topic_id: told.topic_id, partition: PartitionIndex(told.partition) };
        let end = LogEnd { epoch: LeaderEpoch(told.leader_epoch), offset: Offset(told.log_end) };
        (node, partition, end)
    };
    answer.replicas.iter().map(end).collect()
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Call(#[from] CallError),
}
