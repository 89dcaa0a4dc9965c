//! A leader that its peers cannot reach: what it answers while another one leads already, and afterwards.

use floodmark::types::ErrorCode;
use floodmark::wire::messages::RecordBytes;
use floodmark::wire::messages::fetch_response::PartitionData;

use super::client::Client;
use super::harness::{Cluster, until};
use super::requests::{
    assert_code, batch, by_name, fetch, fetch_request, list_offsets_request, only_partition, produce,
    produce_request,
};

async fn leader_at(cluster: &Cluster, id: i32) -> (i32, i32) {
    let partition = cluster.topic_at(id, "t").await.partitions.remove(0);
    (partition.leader_id.0, partition.leader_epoch)
}

/// Reads as a consumer that knows this leader epoch.
async fn fetch_in(client: &mut Client, epoch: i32) -> PartitionData {
    let mut request = fetch_request(12, by_name("t"), &[(0, 0)]);
    request.topics[0].partitions[0].current_leader_epoch = epoch;
    only_partition(client.call(12, request).await)
}

fn records(data: PartitionData) -> Vec<u8> {
    data.records.map(RecordBytes::into_bytes).unwrap_or_default().to_vec()
}

/// It cannot tell whether others lead or all controllers are away, so it goes on serving what is committed, as in Kafka: that is
/// never wrong, only old. It takes nothing, and a consumer that has heard of the new leader from anybody is not served.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_serves_what_is_committed_and_takes_nothing() {
    let cluster = Cluster::linked(3, &[("min.insync.replicas", "2")]).await;
    cluster.create_topic(1, "t", 1, &[]).await;
    cluster.until_in_sync("t").await;
    assert_eq!(cluster.produce("t", 0, &["a"]).await, 0);
    let (old, old_epoch) = leader_at(&cluster, 1).await;
    let committed = cluster.read("t", 0, 1).await.to_vec();
    cluster.cut_off(old, true);

    let other = cluster.running().into_iter().find(|id| *id != old).unwrap();
    until(async || ![old, -1].contains(&leader_at(&cluster, other).await.0)).await;
    let (new, new_epoch) = leader_at(&cluster, other).await;
    assert!(new_epoch > old_epoch);
    until(async || {
        let produced = produce(&mut cluster.connect(new).await, "t", 0, batch(&["b"])).await;
        produced.error_code == 0 && produced.base_offset == 1
    })
    .await;

    let mut client = cluster.connect(old).await;
    until(async || {
        let request = produce_request(12, by_name("t"), -1, &[(0, batch(&["lost"]))]).with_timeout_ms(100);
        let answered = client.call(12, request).await;
        let code = answered.responses[0].partition_responses[0].error_code;
        assert_ne!(code, 0, "nobody else has it");
        code == ErrorCode::NotLeaderOrFollower.code()
    })
    .await;
    assert_eq!(leader_at(&cluster, old).await, (old, old_epoch), "it has not heard of the other one");
    for epoch in [-1, old_epoch] {
        let read = fetch_in(&mut client, epoch).await;
        assert_eq!((read.error_code, read.high_watermark), (0, 1));
        assert_eq!(records(read), committed);
    }
    let listed = client.call(7, list_offsets_request("t", 0, -1)).await;
    assert_eq!((listed.topics[0].partitions[0].error_code, listed.topics[0].partitions[0].offset), (0, 1));
    let refused = fetch_in(&mut client, new_epoch).await;
    assert_code(refused.error_code, ErrorCode::UnknownLeaderEpoch, "whoever knows better");

    cluster.cut_off(old, false);
    cluster.until_in_sync("t").await;
    let all = cluster.read("t", 0, 2).await.to_vec();
    until(async || {
        let read = fetch(&mut client, "t", 0, 0).await;
        read.high_watermark == 2 && records(read) == all
    })
    .await;
    let refused = fetch_in(&mut client, old_epoch).await;
    assert_code(refused.error_code, ErrorCode::FencedLeaderEpoch, "what it led is over");
    cluster.stop().await;
}
