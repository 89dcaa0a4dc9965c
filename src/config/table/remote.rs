//! Properties of tiered storage.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, double, int, long, string};
use super::NO_TIERED;

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    boolean("remote.log.storage.system.enable", "false").instead(NO_TIERED)
        .doc("Whether segments may move to remote storage."),
    string("remote.log.storage.manager.class.name", "").null().non_empty().instead(NO_TIERED)
        .doc("The class that stores segments remotely."),
    string("remote.log.storage.manager.class.path", "").null().instead(NO_TIERED)
        .doc("Where that class is found."),
    string("remote.log.storage.manager.impl.prefix", "rsm.config.").non_empty().instead(NO_TIERED)
        .doc("How the names of that class's own properties begin."),
    string("remote.log.metadata.manager.class.name", "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager")
        .non_empty().instead(NO_TIERED)
        .doc("The class that remembers which segments are stored remotely."),
    string("remote.log.metadata.manager.class.path", "").null().instead(NO_TIERED)
        .doc("Where that class is found."),
    string("remote.log.metadata.manager.impl.prefix", "rlmm.config.").non_empty().instead(NO_TIERED)
        .doc("How the names of that class's own properties begin."),
    string("remote.log.metadata.manager.listener.name", "").null().non_empty().instead(NO_TIERED)
        .doc("The listener that class connects to."),
    int("remote.log.metadata.custom.metadata.max.bytes", "128").at_least(0).low().instead(NO_TIERED)
        .doc("The most that a storage class may remember about a segment itself."),
    long("remote.log.index.file.cache.total.size.bytes", "1073741824").at_least(1).low().cluster_wide()
        .instead(NO_TIERED)
        .doc("The disk space for indexes fetched from remote storage."),
    long("remote.log.index.file.cache.ttl.ms", "900000").at_least(-1).low().internal().instead(NO_TIERED)
        .doc("How long such an index stays without use."),
    int("remote.log.manager.thread.pool.size", "2").at_least(1).instead(NO_TIERED)
        .doc("Threads that plan work on remote segments."),
    int("remote.log.manager.copier.thread.pool.size", "10").at_least(1).cluster_wide().instead(NO_TIERED)
        .doc("Threads that copy segments to remote storage."),
    int("remote.log.manager.expiration.thread.pool.size", "10").at_least(1).cluster_wide()
        .instead(NO_TIERED)
        .doc("Threads that delete old remote segments."),
    int("remote.log.manager.follower.thread.pool.size", "2").at_least(1).cluster_wide().instead(NO_TIERED)
        .doc("Threads that follow remote segments for partitions led elsewhere."),
    long("remote.log.manager.task.interval.ms", "30000").at_least(1).low().instead(NO_TIERED)
        .doc("How often work on remote segments is looked for."),
    long("remote.log.manager.task.retry.backoff.ms", "500").at_least(1).low().internal().instead(NO_TIERED)
        .doc("How long failed work on remote segments rests at first."),
    long("remote.log.manager.task.retry.backoff.max.ms", "30000").at_least(1).low().internal()
        .instead(NO_TIERED)
        .doc("How long failed work on remote segments rests at most."),
    double("remote.log.manager.task.retry.jitter", "0.2").between_doubles(0.0, 0.5).low().internal()
        .instead(NO_TIERED)
        .doc("By what share that rest varies."),
    int("remote.log.reader.threads", "10").at_least(1).cluster_wide().instead(NO_TIERED)
        .doc("Threads that read from remote storage."),
    int("remote.log.reader.max.pending.tasks", "100").at_least(1).instead(NO_TIERED)
        .doc("How many reads from remote storage may wait."),
    long("remote.log.manager.copy.max.bytes.per.second", "9223372036854775807").at_least(1).cluster_wide()
        .instead(NO_TIERED)
        .doc("The most bytes per second copied to remote storage."),
    int("remote.log.manager.copy.quota.window.num", "11").at_least(1).instead(NO_TIERED)
        .doc("How many samples that limit looks back over."),
    int("remote.log.manager.copy.quota.window.size.seconds", "1").at_least(1).instead(NO_TIERED)
        .doc("How long each sample is."),
    long("remote.log.manager.fetch.max.bytes.per.second", "9223372036854775807").at_least(1).cluster_wide()
        .instead(NO_TIERED)
        .doc("The most bytes per second read from remote storage."),
    int("remote.log.manager.fetch.quota.window.num", "11").at_least(1).instead(NO_TIERED)
        .doc("How many samples that limit looks back over."),
    int("remote.log.manager.fetch.quota.window.size.seconds", "1").at_least(1).instead(NO_TIERED)
        .doc("How long each sample is."),
    int("remote.fetch.max.wait.ms", "500").at_least(1).cluster_wide().instead(NO_TIERED)
        .doc("How long a fetch waits for remote storage."),
    long("remote.list.offsets.request.timeout.ms", "30000").at_least(1).cluster_wide().instead(NO_TIERED)
        .doc("How long looking up offsets waits for remote storage."),
    long("log.local.retention.ms", "-2").at_least(-2).cluster_wide().instead(NO_TIERED)
        .doc("How long records that are stored remotely stay on local disks; -2 stands for the retention time."),
    long("log.local.retention.bytes", "-2").at_least(-2).cluster_wide().instead(NO_TIERED)
        .doc("How much of a partition stored remotely stays on local disks; -2 stands for the retention size."),
    long("log.remote.copy.lag.ms", "0").at_least(-1).cluster_wide().instead(NO_TIERED)
        .doc("How old a segment must be before it is copied; -1 waits for the local retention time."),
    long("log.remote.copy.lag.bytes", "-1").at_least(-1).cluster_wide().instead(NO_TIERED)
        .doc("How much newer data there must be before a segment is copied; -1 waits for the local retention size."),
];
