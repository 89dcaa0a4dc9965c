//! Broker properties of streams groups.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, class, int, list, long};
use super::{NO_CLASSES, NO_STREAMS, STREAMS_ASSIGNORS};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    int("group.streams.session.timeout.ms", "45000").at_least(1).instead(NO_STREAMS)
        .doc("How long a member of a streams group may be silent."),
    int("group.streams.min.session.timeout.ms", "45000").at_least(1).instead(NO_STREAMS)
        .doc("The least that a group may set for it."),
    int("group.streams.max.session.timeout.ms", "60000").at_least(1).instead(NO_STREAMS)
        .doc("The most that a group may set for it."),
    int("group.streams.heartbeat.interval.ms", "5000").at_least(1).instead(NO_STREAMS)
        .doc("How often a member of a streams group reports."),
    int("group.streams.min.heartbeat.interval.ms", "5000").at_least(1).instead(NO_STREAMS)
        .doc("The least that a group may set for it."),
    int("group.streams.max.heartbeat.interval.ms", "15000").at_least(1).instead(NO_STREAMS)
        .doc("The most that a group may set for it."),
    int("group.streams.assignment.interval.ms", "1000").at_least(0).cluster_wide().instead(NO_STREAMS)
        .doc("The least time between two assignments of a streams group."),
    int("group.streams.min.assignment.interval.ms", "0").at_least(0).instead(NO_STREAMS)
        .doc("The least that a group may set for it."),
    int("group.streams.max.assignment.interval.ms", "15000").at_least(0).instead(NO_STREAMS)
        .doc("The most that a group may set for it."),
    boolean("group.streams.assignor.offload.enable", "true").cluster_wide().internal().instead(NO_STREAMS)
        .doc("Whether assignments of streams groups are computed in the background."),
    list("group.streams.assignors", "sticky").filled_list_of(STREAMS_ASSIGNORS).instead(NO_STREAMS)
        .doc("The assignors of tasks, the default one first."),
    int("group.streams.max.size", "2147483647").at_least(1).instead(NO_STREAMS)
        .doc("The most members of a streams group."),
    int("group.streams.num.standby.replicas", "0").at_least(0).instead(NO_STREAMS)
        .doc("How many standby copies of each task's state there are."),
    int("group.streams.max.standby.replicas", "2").at_least(0).instead(NO_STREAMS)
        .doc("The most that a group may set for it."),
    int("group.streams.num.warmup.replicas", "2").at_least(0).internal().instead(NO_STREAMS)
        .doc("How many copies may warm up at a time for tasks that are to move."),
    int("group.streams.max.warmup.replicas", "20").at_least(0).internal().instead(NO_STREAMS)
        .doc("The most that a group may set for it."),
    long("group.streams.acceptable.recovery.lag", "10000").at_least(0).internal().instead(NO_STREAMS)
        .doc("How many records behind a copy still counts as caught up."),
    int("group.streams.initial.rebalance.delay.ms", "3000").at_least(0).instead(NO_STREAMS)
        .doc("How long an empty streams group waits for more members before it assigns."),
    int("group.streams.task.offset.interval.ms", "60000").at_least(1).internal().instead(NO_STREAMS)
        .doc("How often members report how far their tasks are."),
    int("group.streams.min.task.offset.interval.ms", "15000").at_least(1).internal().instead(NO_STREAMS)
        .doc("The least that a group may set for it."),
    list("group.streams.rack.aware.assignment.tags", "").any_list().low().instead(NO_STREAMS)
        .doc("The tags of clients over which standby copies are spread."),
    class("group.streams.topology.description.plugin.class", "").null().instead(NO_CLASSES)
        .doc("The class that stores descriptions of topologies."),
];
