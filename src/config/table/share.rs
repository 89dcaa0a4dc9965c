//! Broker properties of share groups.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, int, list, short, string};
use super::{NO_CLASSES, NO_PURGATORY, NO_SHARE, SHARE_ASSIGNORS};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    int("group.share.session.timeout.ms", "45000").at_least(1).instead(NO_SHARE)
        .doc("How long a member of a share group may be silent."),
    int("group.share.min.session.timeout.ms", "45000").at_least(1).instead(NO_SHARE)
        .doc("The least that a group may set for it."),
    int("group.share.max.session.timeout.ms", "60000").at_least(1).instead(NO_SHARE)
        .doc("The most that a group may set for it."),
    int("group.share.heartbeat.interval.ms", "5000").at_least(1).instead(NO_SHARE)
        .doc("How often a member of a share group reports."),
    int("group.share.min.heartbeat.interval.ms", "5000").at_least(1).instead(NO_SHARE)
        .doc("The least that a group may set for it."),
    int("group.share.max.heartbeat.interval.ms", "15000").at_least(1).instead(NO_SHARE)
        .doc("The most that a group may set for it."),
    int("group.share.assignment.interval.ms", "1000").at_least(0).cluster_wide().instead(NO_SHARE)
        .doc("The least time between two assignments of a share group."),
    int("group.share.min.assignment.interval.ms", "0").at_least(0).instead(NO_SHARE)
        .doc("The least that a group may set for it."),
    int("group.share.max.assignment.interval.ms", "15000").at_least(0).instead(NO_SHARE)
        .doc("The most that a group may set for it."),
    boolean("group.share.assignor.offload.enable", "true").cluster_wide().internal().instead(NO_SHARE)
        .doc("Whether assignments of share groups are computed in the background."),
    int("group.share.max.size", "200").between(1, 1000).instead(NO_SHARE)
        .doc("The most members of a share group."),
    list("group.share.assignors", "simple").filled_list_of(SHARE_ASSIGNORS).instead(NO_SHARE)
        .doc("The assignor for share groups."),
    int("group.share.max.share.sessions", "2000").at_least(1).instead(NO_SHARE)
        .doc("The most share sessions that a broker remembers."),
    int("group.share.delivery.count.limit", "5").between(2, 10).instead(NO_SHARE)
        .doc("How often a record is delivered before it is given up."),
    int("group.share.min.delivery.count.limit", "2").between(2, 5).instead(NO_SHARE)
        .doc("The least that a group may set for it."),
    int("group.share.max.delivery.count.limit", "10").between(5, 25).instead(NO_SHARE)
        .doc("The most that a group may set for it."),
    int("group.share.record.lock.duration.ms", "30000").between(1000, 3600000).instead(NO_SHARE)
        .doc("How long a record stays with the member that acquired it."),
    int("group.share.min.record.lock.duration.ms", "15000").between(1000, 30000).instead(NO_SHARE)
        .doc("The least that a group may set for it."),
    int("group.share.max.record.lock.duration.ms", "60000").between(30000, 3600000).instead(NO_SHARE)
        .doc("The most that a group may set for it."),
    int("group.share.partition.max.record.locks", "2000").between(100, 10000).instead(NO_SHARE)
        .doc("How many records of a partition may be acquired at a time."),
    int("group.share.min.partition.max.record.locks", "100").between(100, 2000).instead(NO_SHARE)
        .doc("The least that a group may set for it."),
    int("group.share.max.partition.max.record.locks", "4000").between(2000, 10000).instead(NO_SHARE)
        .doc("The most that a group may set for it."),
    int("group.share.initialize.retry.interval.ms", "30000").at_least(1).low().internal().instead(NO_SHARE)
        .doc("How often setting up a share partition is tried again."),
    string("group.share.persister.class.name", "org.apache.kafka.server.share.persister.DefaultStatePersister")
        .internal().instead(NO_CLASSES)
        .doc("The class that stores the state of share groups."),
    string("group.share.dlq.manager.class.name", "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager")
        .internal().instead(NO_CLASSES)
        .doc("The class that writes records given up to a dead letter queue."),
    int("share.fetch.purgatory.purge.interval.requests", "1000").instead(NO_PURGATORY)
        .doc("How often finished share fetches that waited are cleared away."),
    int("share.coordinator.threads", "1").at_least(1).instead(NO_SHARE)
        .doc("Threads that keep the state of share groups."),
    int("share.coordinator.append.linger.ms", "-1").at_least(-1).instead(NO_SHARE)
        .doc("How long a share coordinator collects records before it writes them; -1 adapts to the load."),
    int("share.coordinator.cached.buffer.max.bytes", "1048588").at_least(524288).cluster_wide()
        .instead(NO_SHARE)
        .doc("The largest write buffer that a share coordinator keeps for the next write."),
    int("share.coordinator.load.buffer.size", "5242880").at_least(1).high().instead(NO_SHARE)
        .doc("How many bytes are read at a time when state is loaded."),
    int("share.coordinator.snapshot.update.records.per.snapshot", "500").between(0, 500).instead(NO_SHARE)
        .doc("How many updates follow a full state before the next full one."),
    int("share.coordinator.cold.partition.snapshot.interval.ms", "300000").at_least(1).low().internal()
        .instead(NO_SHARE)
        .doc("How often the state of idle partitions is written in full."),
    int("share.coordinator.write.timeout.ms", "5000").at_least(1).high().instead(NO_SHARE)
        .doc("How long storing state may take."),
    short("share.coordinator.state.topic.replication.factor", "3").at_least(1).high().instead(NO_SHARE)
        .doc("How many replicas the topic of share state gets when it is created."),
    short("share.coordinator.state.topic.min.isr", "2").at_least(1).high().instead(NO_SHARE)
        .doc("How many replicas in sync a write to the topic of share state needs."),
    int("share.coordinator.state.topic.num.partitions", "50").at_least(1).high().instead(NO_SHARE)
        .doc("How many partitions the topic of share state has; not to be changed later."),
    int("share.coordinator.state.topic.segment.bytes", "104857600").at_least(1).high().instead(NO_SHARE)
        .doc("The size of a segment of the topic of share state."),
    int("share.coordinator.state.topic.compression.codec", "0").between(0, 4).high().instead(NO_SHARE)
        .doc("How the topic of share state is compressed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    int("share.coordinator.state.topic.prune.interval.ms", "300000").at_least(1).low().internal()
        .instead(NO_SHARE)
        .doc("How often outdated state is deleted."),
    boolean("errors.deadletterqueue.auto.create.topics.enable", "false").cluster_wide().instead(NO_SHARE)
        .doc("Whether dead letter topics are created when they are missing."),
    string("errors.deadletterqueue.topic.name.prefix", "dlq.").cluster_wide().instead(NO_SHARE)
        .doc("How the names of dead letter topics begin."),
];
