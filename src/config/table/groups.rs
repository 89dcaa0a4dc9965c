//! Properties of groups, each with the broker property that stands in for it.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, int, list, long, same, string};
use super::{NO_GROUPS, NO_SHARE, NO_STREAMS, rules};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    int("consumer.assignment.interval.ms", "1000").at_least(0)
        .or(&[same("group.consumer.assignment.interval.ms")])
        .doc("The least time between two assignments of the group."),
    boolean("consumer.assignor.offload.enable", "true").internal()
        .or(&[same("group.consumer.assignor.offload.enable")]).instead(NO_GROUPS)
        .doc("Whether assignments of the group are computed in the background."),
    int("consumer.heartbeat.interval.ms", "5000").at_least(1)
        .or(&[same("group.consumer.heartbeat.interval.ms")])
        .doc("How often a member reports."),
    int("consumer.session.timeout.ms", "45000").at_least(1).or(&[same("group.consumer.session.timeout.ms")])
        .doc("How long a member may be silent."),
    boolean("errors.deadletterqueue.copy.record.enable", "false").instead(NO_SHARE)
        .doc("Whether a dead letter carries the record itself."),
    string("errors.deadletterqueue.topic.name", "").instead(NO_SHARE)
        .doc("The topic for records that are given up; empty for none."),
    int("share.assignment.interval.ms", "1000").at_least(0)
        .or(&[same("group.share.assignment.interval.ms")]).instead(NO_SHARE)
        .doc("The least time between two assignments of the group."),
    boolean("share.assignor.offload.enable", "true").internal()
        .or(&[same("group.share.assignor.offload.enable")]).instead(NO_SHARE)
        .doc("Whether assignments of the group are computed in the background."),
    string("share.auto.offset.reset", "latest").rule(rules::OFFSET_RESET, rules::offset_reset)
        .instead(NO_SHARE)
        .doc("Where the group starts to read: `earliest`, `latest`, or `by_duration:` with an ISO 8601 duration back from now."),
    int("share.delivery.count.limit", "5").at_least(2).or(&[same("group.share.delivery.count.limit")])
        .instead(NO_SHARE)
        .doc("How often a record is delivered before it is given up."),
    int("share.heartbeat.interval.ms", "5000").at_least(1).or(&[same("group.share.heartbeat.interval.ms")])
        .instead(NO_SHARE)
        .doc("How often a member reports."),
    string("share.isolation.level", "read_uncommitted").one_of(&["read_committed", "read_uncommitted"])
        .instead(NO_SHARE)
        .doc("Whether the group sees records of open and aborted transactions."),
    int("share.partition.max.record.locks", "2000").at_least(100)
        .or(&[same("group.share.partition.max.record.locks")]).instead(NO_SHARE)
        .doc("How many records of a partition may be acquired at a time."),
    int("share.record.lock.duration.ms", "30000").at_least(1000)
        .or(&[same("group.share.record.lock.duration.ms")]).instead(NO_SHARE)
        .doc("How long a record stays with the member that acquired it."),
    boolean("share.renew.acknowledge.enable", "true").instead(NO_SHARE)
        .doc("Whether a member may extend its hold on a record."),
    int("share.session.timeout.ms", "45000").at_least(1).or(&[same("group.share.session.timeout.ms")])
        .instead(NO_SHARE)
        .doc("How long a member may be silent."),
    long("streams.acceptable.recovery.lag", "10000").at_least(0).internal()
        .or(&[same("group.streams.acceptable.recovery.lag")]).instead(NO_STREAMS)
        .doc("How many records behind a copy still counts as caught up."),
    int("streams.assignment.interval.ms", "1000").at_least(0)
        .or(&[same("group.streams.assignment.interval.ms")]).instead(NO_STREAMS)
        .doc("The least time between two assignments of the group."),
    string("streams.assignor.name", "").null().or(&[same("group.streams.assignors")]).instead(NO_STREAMS)
        .doc("The assignor of tasks, one of those that the broker offers."),
    boolean("streams.assignor.offload.enable", "true").internal()
        .or(&[same("group.streams.assignor.offload.enable")]).instead(NO_STREAMS)
        .doc("Whether assignments of the group are computed in the background."),
    int("streams.heartbeat.interval.ms", "5000").at_least(1)
        .or(&[same("group.streams.heartbeat.interval.ms")]).instead(NO_STREAMS)
        .doc("How often a member reports."),
    int("streams.initial.rebalance.delay.ms", "3000").at_least(0)
        .or(&[same("group.streams.initial.rebalance.delay.ms")]).instead(NO_STREAMS)
        .doc("How long the empty group waits for more members before it assigns."),
    int("streams.num.standby.replicas", "0").at_least(0).or(&[same("group.streams.num.standby.replicas")])
        .instead(NO_STREAMS)
        .doc("How many standby copies of each task's state there are."),
    int("streams.num.warmup.replicas", "2").at_least(0).internal()
        .or(&[same("group.streams.num.warmup.replicas")]).instead(NO_STREAMS)
        .doc("How many copies may warm up at a time for tasks that are to move."),
    list("streams.rack.aware.assignment.tags", "").any_list().low()
        .or(&[same("group.streams.rack.aware.assignment.tags")]).instead(NO_STREAMS)
        .doc("The tags of clients over which standby copies are spread."),
    int("streams.session.timeout.ms", "45000").at_least(1).or(&[same("group.streams.session.timeout.ms")])
        .instead(NO_STREAMS)
        .doc("How long a member may be silent."),
    int("streams.task.offset.interval.ms", "60000").at_least(1).internal()
        .or(&[same("group.streams.task.offset.interval.ms")]).instead(NO_STREAMS)
        .doc("How often members report how far their tasks are."),
];
