//! Properties of logs: where records lie, how segments roll, when they go, when they are safe.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, double, int, list, long, string};
use super::{COMPRESSIONS, DIRECTORIES, NO_PREALLOCATION, rules};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    list("log.dir", "/tmp/kafka-logs").filled_list().high()
        .doc("The directories for data when `log.dirs` is unset."),
    list("log.dirs", "").null().filled_list().high()
        .doc("The directories for data, separated by commas; partitions are spread over them."),
    list("cordoned.log.dirs", "").any_list().per_broker()
        .doc("Directories that get no new partitions; `*` stands for all."),
    boolean("log.flush.before.ack", "true").high().cluster_wide().ours()
        .doc("Whether acks=1 and acks=all are answered, and records shown to consumers, only once they are safely on disk. Off trusts the operating system's cache as Kafka does."),
    long("log.dir.reserve.bytes", "268435456").at_least(0).cluster_wide().ours()
        .doc("How much of a log directory's file system is left free of records: below that, produce requests are refused and followers wait, so that metadata, offsets and deletions still find room. No more than a tenth of the file system; 0 keeps nothing."),
    int("num.partitions", "1").at_least(1)
        .doc("How many partitions a topic gets whose creator does not say."),
    boolean("auto.create.topics.enable", "true").high()
        .doc("Whether a topic that a client asks for is created when it is missing."),
    int("min.insync.replicas", "1").at_least(1).high().cluster_wide()
        .doc("How many replicas in sync an acks=all write needs."),
    int("message.max.bytes", "1048588").at_least(0).high().cluster_wide()
        .doc("The largest batch of records that is accepted, as it is sent (after compression)."),
    int("max.decompressed.message.bytes", "2147483639").between(1, 2147483639).cluster_wide()
        .doc("The largest record that a compressed batch may hold, as it is unpacked."),
    string("compression.type", "producer").one_of(COMPRESSIONS).high().cluster_wide()
        .doc("How batches are stored: `producer` keeps them as they came, `uncompressed` unpacks them, any other packs them anew."),
    int("compression.gzip.level", "-1").rule(rules::GZIP_LEVEL, rules::gzip_level).cluster_wide()
        .doc("The effort of gzip where the broker packs: 1 to 9, or -1 for its own default."),
    int("compression.lz4.level", "9").between(1, 17).cluster_wide()
        .doc("The effort of lz4 where the broker packs."),
    int("compression.zstd.level", "3").between(-131072, 22).cluster_wide()
        .doc("The effort of zstd where the broker packs."),
    int("log.segment.bytes", "1073741824").at_least(1048576).high().cluster_wide()
        .doc("The size at which a new segment file begins."),
    long("log.roll.ms", "").null().high().cluster_wide()
        .doc("The age at which a new segment begins; wins over `log.roll.hours`."),
    int("log.roll.hours", "168").at_least(1).high()
        .doc("The age at which a new segment begins, in hours."),
    long("log.roll.jitter.ms", "").null().high().cluster_wide()
        .doc("How much earlier than its age a segment may end, chosen at random so that not all end at once; wins over the hours."),
    int("log.roll.jitter.hours", "0").at_least(0).high()
        .doc("The same in hours."),
    long("log.retention.ms", "").null().high().cluster_wide()
        .doc("How long records are kept; -1 keeps them for ever. Wins over minutes and hours."),
    int("log.retention.minutes", "").null().high()
        .doc("How long records are kept, in minutes; wins over hours."),
    int("log.retention.hours", "168").high()
        .doc("How long records are kept, in hours."),
    long("log.retention.bytes", "-1").high().cluster_wide()
        .doc("How large a partition may grow before its oldest segments go; -1 sets no limit."),
    long("log.retention.check.interval.ms", "300000").at_least(1)
        .doc("How often old segments are looked for."),
    list("log.cleanup.policy", "delete").list_of(&["compact", "delete"]).cluster_wide()
        .doc("What becomes of old segments: `delete` drops them, `compact` keeps the last record of each key, both does both."),
    int("log.index.size.max.bytes", "10485760").at_least(4).cluster_wide()
        .doc("The size of an index file; a full one ends its segment."),
    int("log.index.interval.bytes", "4096").at_least(0).cluster_wide()
        .doc("How many bytes of records lie between two index entries."),
    long("log.flush.interval.messages", "9223372036854775807").at_least(1).high().cluster_wide()
        .doc("After how many records a partition is synced to disk."),
    long("log.flush.interval.ms", "").null().high().cluster_wide()
        .doc("After how long a partition's new records are synced to disk; unset, `log.flush.scheduler.interval.ms`."),
    long("log.flush.scheduler.interval.ms", "9223372036854775807").high()
        .doc("What `log.flush.interval.ms` is where it is unset. Partitions are synced when they are due; nothing looks for them at intervals."),
    int("log.flush.offset.checkpoint.interval.ms", "60000").at_least(0).high()
        .doc("How often the recovery points are written."),
    int("log.flush.start.offset.checkpoint.interval.ms", "60000").at_least(0).high()
        .doc("How often the log start offsets are written."),
    long("log.segment.delete.delay.ms", "60000").at_least(0).high().cluster_wide()
        .doc("How long the files of a deleted segment stay on disk."),
    boolean("log.preallocate", "false").cluster_wide().instead(NO_PREALLOCATION)
        .doc("Whether a new segment gets its whole size at once."),
    string("log.message.timestamp.type", "CreateTime").one_of(&["CreateTime", "LogAppendTime"])
        .cluster_wide()
        .doc("Whether records keep their producer's time (`CreateTime`) or get the broker's (`LogAppendTime`)."),
    long("log.message.timestamp.before.max.ms", "9223372036854775807").at_least(0).cluster_wide()
        .doc("How far a record's time may lie behind the broker's clock."),
    long("log.message.timestamp.after.max.ms", "3600000").at_least(0).cluster_wide()
        .doc("How far a record's time may lie ahead of the broker's clock."),
    long("log.dir.failure.timeout.ms", "30000").at_least(1).low().instead(DIRECTORIES)
        .doc("How long a broker may fail to report a failed directory before it stops."),
    long("log.initial.task.delay.ms", "30000").at_least(0).low().internal()
        .doc("How long after the start old segments are first looked for."),
    int("num.recovery.threads.per.data.dir", "2").at_least(1).high().cluster_wide()
        .doc("How many partitions of one directory are recovered at a time."),
    int("producer.id.expiration.ms", "86400000").at_least(1).low().cluster_wide()
        .doc("After how long without a write the state of a producer is forgotten."),
    int("producer.id.expiration.check.interval.ms", "600000").at_least(1).low().internal()
        .doc("How often forgotten producers are looked for; every 30 seconds at the least."),
    int("producer.state.max.per.partition", "100000").at_least(1).cluster_wide().ours()
        .doc("How many producers a partition remembers, those with an open transaction not counted. When there are more, those that wrote longest ago are forgotten, as if they had expired, a sixteenth at a time, and a log line says so."),
    int("producer.state.max", "1000000").at_least(1).ours()
        .doc("How many producers all partitions of a broker remember together. The last quarter is for partitions that have less than an equal share of it, so that the churn of one costs the others nothing."),
    boolean("log.cleaner.enable", "true")
        .doc("Whether compaction runs."),
    int("log.cleaner.threads", "1").at_least(0).cluster_wide()
        .doc("Threads that compact."),
    double("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308").cluster_wide()
        .doc("The most bytes that compaction reads and writes per second."),
    long("log.cleaner.dedupe.buffer.size", "134217728").cluster_wide()
        .doc("The memory for keys, shared by all compacting threads."),
    int("log.cleaner.io.buffer.size", "524288").at_least(0).cluster_wide()
        .doc("The memory for records, shared by all compacting threads."),
    double("log.cleaner.io.buffer.load.factor", "0.9").cluster_wide()
        .doc("How full the table of keys may get."),
    long("log.cleaner.backoff.ms", "15000").at_least(0).cluster_wide()
        .doc("How long compaction sleeps when there is nothing to do."),
    double("log.cleaner.min.cleanable.ratio", "0.5").between_doubles(0.0, 1.0).cluster_wide()
        .doc("The share of a log not yet compacted that makes compaction worth while."),
    long("log.cleaner.delete.retention.ms", "86400000").at_least(0).cluster_wide()
        .doc("How long delete markers stay in a compacted log."),
    long("log.cleaner.min.compaction.lag.ms", "0").at_least(0).cluster_wide()
        .doc("How long a record is safe from compaction."),
    long("log.cleaner.max.compaction.lag.ms", "9223372036854775807").at_least(1).cluster_wide()
        .doc("After how long a record is due for compaction at the latest."),
];
