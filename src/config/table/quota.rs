//! Properties of quotas.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, class, int, long};
use super::{NO_CLASSES, NO_QUOTA, STEADY};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    int("quota.window.num", "11").at_least(1).low().instead(NO_QUOTA)
        .doc("How many samples a client quota looks back over."),
    int("quota.window.size.seconds", "1").at_least(1).low().instead(NO_QUOTA)
        .doc("How long each sample of a client quota is."),
    int("replication.quota.window.num", "11").at_least(1).low().instead(STEADY)
        .doc("How many samples a replication quota looks back over."),
    int("replication.quota.window.size.seconds", "1").at_least(1).low().instead(STEADY)
        .doc("How long each sample of a replication quota is."),
    int("alter.log.dirs.replication.quota.window.num", "11").at_least(1).low().instead(STEADY)
        .doc("How many samples the quota for moves between directories looks back over."),
    int("alter.log.dirs.replication.quota.window.size.seconds", "1").at_least(1).low().instead(STEADY)
        .doc("How long each sample of that quota is."),
    int("controller.quota.window.num", "11").at_least(1).low().instead(NO_QUOTA)
        .doc("How many samples the quota for changes of topics looks back over."),
    int("controller.quota.window.size.seconds", "1").at_least(1).low().instead(NO_QUOTA)
        .doc("How long each sample of that quota is."),
    class("client.quota.callback.class", "").null().low().instead(NO_CLASSES)
        .doc("The class that decides which client quota applies."),
    long("leader.replication.throttled.rate", "").null().at_least(0).cluster_wide().internal()
        .doc("The most bytes per second that a leader sends for throttled replicas."),
    long("follower.replication.throttled.rate", "").null().at_least(0).cluster_wide().internal()
        .doc("The most bytes per second that a follower takes for throttled replicas."),
    long("replica.alter.log.dirs.io.max.bytes.per.second", "").null().at_least(0).cluster_wide().internal()
        .doc("The most bytes per second for moves between directories."),
];
