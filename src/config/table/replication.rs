//! Properties of replication and leadership.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, int, long, string};
use super::{BUFFERS, NO_PURGATORY, NO_TIERED, PATIENCE};

/// There is no Java virtual machine to load other classes.
const REPLICA_SELECTORS: &[&str] = &["org.apache.kafka.common.replica.RackAwareReplicaSelector"];

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    int("default.replication.factor", "1")
        .doc("How many replicas a topic gets whose creator does not say."),
    boolean("unclean.leader.election.enable", "false").high().cluster_wide()
        .doc("Whether a replica that is not in sync may lead when no other is left, which loses records."),
    long("unclean.leader.election.interval.ms", "300000").at_least(1).internal()
        .doc("How often partitions without a leader are looked at for that."),
    long("replica.lag.time.max.ms", "30000").high()
        .doc("How long a follower may be behind before it is not in sync."),
    int("replica.socket.timeout.ms", "30000").high()
        .doc("How long a follower waits for its leader's answer, beyond what the leader may wait for records, before it connects anew."),
    int("replica.socket.receive.buffer.bytes", "65536").high().instead(BUFFERS)
        .doc("The receive buffer of a follower's connection."),
    int("replica.fetch.max.bytes", "1048576").at_least(0)
        .doc("How many bytes a follower asks for of each partition."),
    int("replica.fetch.wait.max.ms", "500").high()
        .doc("How long a follower's fetch may wait for records."),
    int("replica.fetch.backoff.ms", "1000").at_least(0)
        .doc("How long a follower rests after an error, at most: the first rests are shorter."),
    int("replica.fetch.min.bytes", "1").high()
        .doc("How few bytes answer a follower's fetch at once."),
    int("replica.fetch.response.max.bytes", "10485760").at_least(0)
        .doc("How many bytes a follower asks for in all."),
    long("replica.high.watermark.checkpoint.interval.ms", "5000").high()
        .doc("How often high watermarks are written to disk."),
    string("replica.selector.class", "").null().one_of(REPLICA_SELECTORS)
        .doc("What chooses the replica that a consumer reads from: unset, it is the leader; Kafka's rack-aware selector \
              takes one in the consumer's `client.rack`."),
    int("num.replica.fetchers", "1").at_least(1).high().cluster_wide()
        .doc("How many connections a follower keeps to each leader."),
    int("num.replica.alter.log.dirs.threads", "").null().high()
        .doc("How many replicas are moved between directories at a time; unset, as many as there are directories."),
    boolean("auto.leader.rebalance.enable", "true").high()
        .doc("Whether leadership returns to preferred replicas by itself."),
    long("leader.imbalance.check.interval.seconds", "300").at_least(1).high()
        .doc("How often that is looked for."),
    int("controller.socket.timeout.ms", "30000").instead(PATIENCE)
        .doc("How long a broker waits for the controller's answer."),
    int("fetch.purgatory.purge.interval.requests", "1000").instead(NO_PURGATORY)
        .doc("How often finished fetches that waited are cleared away."),
    int("producer.purgatory.purge.interval.requests", "1000").instead(NO_PURGATORY)
        .doc("How often finished writes that waited are cleared away."),
    int("delete.records.purgatory.purge.interval.requests", "1").instead(NO_PURGATORY)
        .doc("How often finished deletions that waited are cleared away."),
    boolean("follower.fetch.last.tiered.offset.enable", "false").cluster_wide().instead(NO_TIERED)
        .doc("Whether an empty follower starts at the last offset in remote storage."),
];
