//! Properties of topics, each with the broker properties that stand in for it.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, double, hours, int, list, long, minutes, same, string};
use super::{COMPRESSIONS, NO_PREALLOCATION, NO_SHARE, NO_TIERED, rules};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    list("cleanup.policy", "delete").list_of(&["compact", "delete"]).or(&[same("log.cleanup.policy")])
        .doc("What becomes of old segments: `delete` drops them, `compact` keeps the last record of each key, both does both; empty keeps everything."),
    string("compression.type", "producer").one_of(COMPRESSIONS).or(&[same("compression.type")])
        .doc("How batches are stored: `producer` keeps them as they came, `uncompressed` unpacks them, any other packs them anew."),
    int("compression.gzip.level", "-1").rule(rules::GZIP_LEVEL, rules::gzip_level)
        .or(&[same("compression.gzip.level")])
        .doc("The effort of gzip where the broker packs: 1 to 9, or -1 for its own default."),
    int("compression.lz4.level", "9").between(1, 17).or(&[same("compression.lz4.level")])
        .doc("The effort of lz4 where the broker packs."),
    int("compression.zstd.level", "3").between(-131072, 22).or(&[same("compression.zstd.level")])
        .doc("The effort of zstd where the broker packs."),
    long("delete.retention.ms", "86400000").at_least(0).or(&[same("log.cleaner.delete.retention.ms")])
        .doc("How long delete markers stay in a compacted log."),
    boolean("errors.deadletterqueue.group.enable", "false").instead(NO_SHARE)
        .doc("Whether share groups may use the topic for dead letters."),
    long("file.delete.delay.ms", "60000").at_least(0).or(&[same("log.segment.delete.delay.ms")])
        .doc("How long the files of a deleted segment stay on disk."),
    boolean("flush.before.ack", "true").ours().or(&[same("log.flush.before.ack")])
        .doc("Whether acks=1 and acks=all are answered, and records shown to consumers, only once they are safely on disk."),
    long("flush.messages", "9223372036854775807").at_least(1).or(&[same("log.flush.interval.messages")])
        .doc("After how many records a partition is synced to disk."),
    long("flush.ms", "9223372036854775807").at_least(0)
        .or(&[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")])
        .doc("After how long a partition's new records are synced to disk."),
    list("follower.replication.throttled.replicas", "")
        .rule(rules::THROTTLED_REPLICAS, rules::throttled_replicas)
        .doc("The replicas whose followers are throttled, as `partition:broker`, separated by commas, or `*` for all."),
    int("index.interval.bytes", "4096").at_least(0).or(&[same("log.index.interval.bytes")])
        .doc("How many bytes of records lie between two index entries."),
    int("internal.segment.bytes", "").null().internal()
        .doc("The size at which a new segment file begins, without a lower limit; for tests."),
    list("leader.replication.throttled.replicas", "")
        .rule(rules::THROTTLED_REPLICAS, rules::throttled_replicas)
        .doc("The replicas whose leaders are throttled, as `partition:broker`, separated by commas, or `*` for all."),
    long("local.retention.bytes", "-2").at_least(-2).or(&[same("log.local.retention.bytes")])
        .instead(NO_TIERED)
        .doc("How much of a partition stored remotely stays on local disks; -2 stands for `retention.bytes`."),
    long("local.retention.ms", "-2").at_least(-2).or(&[same("log.local.retention.ms")]).instead(NO_TIERED)
        .doc("How long records that are stored remotely stay on local disks; -2 stands for `retention.ms`."),
    long("max.compaction.lag.ms", "9223372036854775807").at_least(1)
        .or(&[same("log.cleaner.max.compaction.lag.ms")])
        .doc("After how long a record is due for compaction at the latest."),
    int("max.decompressed.message.bytes", "2147483639").between(1, 2147483639)
        .or(&[same("max.decompressed.message.bytes")])
        .doc("The largest record that a compressed batch may hold, as it is unpacked."),
    int("max.message.bytes", "1048588").at_least(0).or(&[same("message.max.bytes")])
        .doc("The largest batch of records that is accepted, as it is sent (after compression)."),
    long("message.timestamp.after.max.ms", "3600000").at_least(0)
        .or(&[same("log.message.timestamp.after.max.ms")])
        .doc("How far a record's time may lie ahead of the broker's clock."),
    long("message.timestamp.before.max.ms", "9223372036854775807").at_least(0)
        .or(&[same("log.message.timestamp.before.max.ms")])
        .doc("How far a record's time may lie behind the broker's clock."),
    string("message.timestamp.type", "CreateTime").one_of(&["CreateTime", "LogAppendTime"])
        .or(&[same("log.message.timestamp.type")])
        .doc("Whether records keep their producer's time (`CreateTime`) or get the broker's (`LogAppendTime`)."),
    double("min.cleanable.dirty.ratio", "0.5").between_doubles(0.0, 1.0)
        .or(&[same("log.cleaner.min.cleanable.ratio")])
        .doc("The share of a log not yet compacted that makes compaction worth while."),
    long("min.compaction.lag.ms", "0").at_least(0).or(&[same("log.cleaner.min.compaction.lag.ms")])
        .doc("How long a record is safe from compaction."),
    int("min.insync.replicas", "1").at_least(1).or(&[same("min.insync.replicas")])
        .doc("How many replicas in sync an acks=all write needs."),
    boolean("preallocate", "false").or(&[same("log.preallocate")]).instead(NO_PREALLOCATION)
        .doc("Whether a new segment gets its whole size at once."),
    long("remote.copy.lag.bytes", "-1").at_least(-1).or(&[same("log.remote.copy.lag.bytes")])
        .instead(NO_TIERED)
        .doc("How much newer data there must be before a segment is copied; -1 waits for the local retention size."),
    long("remote.copy.lag.ms", "0").at_least(-1).or(&[same("log.remote.copy.lag.ms")]).instead(NO_TIERED)
        .doc("How old a segment must be before it is copied; -1 waits for the local retention time."),
    boolean("remote.log.copy.disable", "false").instead(NO_TIERED)
        .doc("Whether no more segments are copied, so that remote data is only read."),
    boolean("remote.log.delete.on.disable", "false").instead(NO_TIERED)
        .doc("Whether remote data is deleted when the topic leaves remote storage."),
    boolean("remote.storage.enable", "false").instead(NO_TIERED)
        .doc("Whether segments of the topic move to remote storage."),
    long("retention.bytes", "-1").or(&[same("log.retention.bytes")])
        .doc("How large a partition may grow before its oldest segments go; -1 sets no limit."),
    long("retention.ms", "604800000").at_least(-1)
        .or(&[same("log.retention.ms"), minutes("log.retention.minutes"), hours("log.retention.hours")])
        .doc("How long records are kept; -1 keeps them for ever."),
    int("segment.bytes", "1073741824").at_least(1048576).or(&[same("log.segment.bytes")])
        .doc("The size at which a new segment file begins."),
    int("segment.index.bytes", "10485760").at_least(4).or(&[same("log.index.size.max.bytes")])
        .doc("The size of an index file; a full one ends its segment."),
    long("segment.jitter.ms", "0").at_least(0)
        .or(&[same("log.roll.jitter.ms"), hours("log.roll.jitter.hours")])
        .doc("How much earlier than its age a segment may end, chosen at random so that not all end at once."),
    long("segment.ms", "604800000").at_least(1).or(&[same("log.roll.ms"), hours("log.roll.hours")])
        .doc("The age at which a new segment begins."),
    boolean("unclean.leader.election.enable", "false").or(&[same("unclean.leader.election.enable")])
        .doc("Whether a replica that is not in sync may lead when no other is left, which loses records."),
];
