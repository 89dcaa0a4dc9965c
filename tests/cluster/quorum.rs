//! How a quorum of nodes begins that format themselves, and how the voters of the configuration become voters that can be
//! changed (kraft.version 1).

use floodmark::types::{ErrorCode, Uuid};
use floodmark::wire::messages::describe_quorum_request::{PartitionData, TopicData};
use floodmark::wire::messages::describe_quorum_response::ReplicaState;
use floodmark::wire::messages::update_features_request::FeatureUpdateKey;
use floodmark::wire::messages::{DescribeQuorumRequest, RemoveRaftVoterRequest, UpdateFeaturesRequest};

use super::harness::{Cluster, until};
use super::requests::{assert_code, text, topic_name};

async fn upgrade(cluster: &Cluster, through: i32) -> i16 {
    let update = FeatureUpdateKey::default()
        .with_feature(text("kraft.version"))
        .with_max_version_level(1)
        .with_upgrade_type(1);
    let request = UpdateFeaturesRequest::default().with_timeout_ms(30_000).with_feature_updates(vec![update]);
    cluster.connect(through).await.call(2, request).await.error_code
}

async fn voters(cluster: &Cluster, through: i32) -> Vec<ReplicaState> {
    let topic = TopicData::default()
        .with_topic_name(topic_name("__cluster_metadata"))
        .with_partitions(vec![PartitionData::default()]);
    let request = DescribeQuorumRequest::default().with_topics(vec![topic]);
    let mut response = cluster.connect(through).await.call(2, request).await;
    response.topics.remove(0).partitions.remove(0).current_voters
}

#[tokio::test(flavor = "multi_thread")]
async fn voters_of_the_configuration_become_ones_that_can_be_changed() {
    let mut cluster = Cluster::start(3, &[]).await;
    // All of them must be there to say which directories they have.
    cluster.stop_node(3).await;
    assert_code(upgrade(&cluster, 1).await, ErrorCode::InvalidUpdateVersion, "one is away");
    assert!(voters(&cluster, 1).await.iter().all(|voter| voter.replica_directory_id == Uuid::nil()));
    cluster.start_nodes(&[3]).await;
    for through in 1..=3 {
        // The first makes it so, the others find it so.
        assert_code(upgrade(&cluster, through).await, ErrorCode::None, "upgrade");
    }
    let known = voters(&cluster, 2).await;
    assert!(known.len() == 3 && known.iter().all(|voter| voter.replica_directory_id != Uuid::nil()));
    cluster.stop_all().await;
    cluster.start_nodes(&[1, 2, 3]).await;

    let voter = known.iter().find(|voter| voter.replica_id.0 == 3).unwrap();
    let request = RemoveRaftVoterRequest::default()
        .with_cluster_id(None)
        .with_voter_id(3)
        .with_voter_directory_id(voter.replica_directory_id);
    until(async || cluster.connect(1).await.call(0, request.clone()).await.error_code == 0).await;
    until(async || voters(&cluster, 1).await.len() == 2).await;
    // Its configuration names it as a voter still; the log counts.
    cluster.stop_node(3).await;
    cluster.start_nodes(&[3]).await;
    assert_eq!(voters(&cluster, 3).await.len(), 2);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_told_their_cluster_format_themselves() {
    let mut cluster = Cluster::told(3);
    cluster.start_nodes(&[1, 2, 3]).await;
    // The last one in sync may be the one whose disk is lost; of those that left before, one is still eligible.
    cluster.create_topic(2, "t", 1, &[("min.insync.replicas", "2")]).await;
    cluster.until_in_sync("t").await;
    assert_eq!(cluster.produce("t", 0, &["a"]).await, 0);
    cluster.stop_all().await;
    // One comes back without its disk, and must not vote.
    std::fs::remove_dir_all(cluster.data_of(3)).unwrap();
    cluster.start_nodes(&[1, 2]).await;
    let refused = cluster.try_start(3).await.err().unwrap().to_string();
    assert!(refused.contains("the quorum runs already"), "{refused}");
    assert_eq!(cluster.produce("t", 0, &["b"]).await, 1);
    cluster.stop().await;
}
