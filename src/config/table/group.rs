//! Broker properties of classic and consumer groups and of committed offsets.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, int, list, long, short, string};
use super::{CONSUMER_ASSIGNORS, NO_GROUPS};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    int("group.min.session.timeout.ms", "6000")
        .doc("The shortest session timeout that a member of a classic group may ask for."),
    int("group.max.session.timeout.ms", "1800000")
        .doc("The longest session timeout that a member of a classic group may ask for."),
    int("group.initial.rebalance.delay.ms", "3000")
        .doc("How long an empty classic group waits for more members before it assigns."),
    int("group.max.size", "2147483647").at_least(1)
        .doc("The most members of a classic group."),
    list("group.coordinator.rebalance.protocols", "classic,consumer,streams")
        .filled_list_of(&["consumer", "classic", "share", "streams"])
        .doc("The group protocols that are served."),
    int("group.coordinator.threads", "4").at_least(1).high().instead(NO_GROUPS)
        .doc("Threads that coordinate groups."),
    int("group.coordinator.background.threads", "2").at_least(1).high().instead(NO_GROUPS)
        .doc("Threads that coordinators compute assignments on."),
    int("group.coordinator.append.linger.ms", "-1").at_least(-1).instead(NO_GROUPS)
        .doc("How long a group coordinator collects records before it writes them; -1 adapts to the load."),
    int("group.coordinator.cached.buffer.max.bytes", "1048588").at_least(524288).cluster_wide()
        .instead(NO_GROUPS)
        .doc("The largest write buffer that a group coordinator keeps for the next write."),
    int("group.consumer.session.timeout.ms", "45000").at_least(1)
        .doc("How long a member of a consumer group may be silent."),
    int("group.consumer.min.session.timeout.ms", "45000").at_least(1)
        .doc("The least that a group may set for it."),
    int("group.consumer.max.session.timeout.ms", "60000").at_least(1)
        .doc("The most that a group may set for it."),
    int("group.consumer.heartbeat.interval.ms", "5000").at_least(1)
        .doc("How often a member of a consumer group reports."),
    int("group.consumer.min.heartbeat.interval.ms", "5000").at_least(1)
        .doc("The least that a group may set for it."),
    int("group.consumer.max.heartbeat.interval.ms", "15000").at_least(1)
        .doc("The most that a group may set for it."),
    int("group.consumer.assignment.interval.ms", "1000").at_least(0).cluster_wide()
        .doc("The least time between two assignments of a consumer group."),
    int("group.consumer.min.assignment.interval.ms", "0").at_least(0)
        .doc("The least that a group may set for it."),
    int("group.consumer.max.assignment.interval.ms", "15000").at_least(0)
        .doc("The most that a group may set for it."),
    boolean("group.consumer.assignor.offload.enable", "true").cluster_wide().internal().instead(NO_GROUPS)
        .doc("Whether assignments of consumer groups are computed in the background."),
    int("group.consumer.max.size", "2147483647").at_least(1)
        .doc("The most members of a consumer group."),
    list("group.consumer.assignors", "uniform,range").filled_list_of(CONSUMER_ASSIGNORS)
        .doc("The assignors for consumer groups, the default one first."),
    string("group.consumer.migration.policy", "bidirectional")
        .one_of_ignoring_case(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"])
        .doc("Which groups may change between the classic and the consumer protocol while they are in use."),
    int("group.consumer.regex.refresh.interval.ms", "600000").at_least(10000).internal()
        .doc("How often subscriptions by pattern are matched against the topics."),
    int("offset.metadata.max.bytes", "4096").high()
        .doc("The most text that may be stored with an offset."),
    int("offsets.load.buffer.size", "5242880").at_least(1).high()
        .doc("How many bytes are read at a time when offsets are loaded."),
    short("offsets.topic.replication.factor", "3").at_least(1).high()
        .doc("How many replicas the topic of offsets gets when it is created."),
    int("offsets.topic.num.partitions", "50").at_least(1).high()
        .doc("How many partitions the topic of offsets has; not to be changed later."),
    int("offsets.topic.segment.bytes", "104857600").at_least(1).high()
        .doc("The size of a segment of the topic of offsets."),
    int("offsets.topic.compression.codec", "0").between(0, 4).high()
        .doc("How the topic of offsets is compressed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    int("offsets.retention.minutes", "10080").at_least(1).high()
        .doc("How long the offsets of a group without members are kept."),
    long("offsets.retention.check.interval.ms", "600000").at_least(1).high()
        .doc("How often offsets past that are looked for."),
    int("offsets.commit.timeout.ms", "5000").at_least(1).high()
        .doc("How long storing an offset may take."),
];
