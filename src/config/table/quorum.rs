//! Properties of the controllers and of the metadata log.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, int, list, long, string};
use super::{LINGER, METADATA, QUORUM_PACE, QUORUM_PIECES, rules};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    list("controller.quorum.voters", "").rule(rules::VOTERS, rules::voters).high()
        .doc("The controllers that vote, as `id@host:port`, separated by commas."),
    list("controller.quorum.bootstrap.servers", "").rule(rules::BOOTSTRAP_SERVERS, rules::bootstrap_servers)
        .high()
        .doc("Controllers to ask for the rest of the cluster, as `host:port`, separated by commas."),
    boolean("controller.quorum.auto.join.enable", "false").low()
        .doc("Whether a new controller makes itself a voter."),
    int("controller.quorum.election.timeout.ms", "1000").at_least(0).high().instead(QUORUM_PACE)
        .doc("How long a voter waits for an election to end."),
    int("controller.quorum.election.backoff.max.ms", "1000").at_least(0).high().instead(QUORUM_PACE)
        .doc("The longest rest between two elections."),
    int("controller.quorum.fetch.timeout.ms", "2000").at_least(0).high().instead(QUORUM_PACE)
        .doc("How long a voter goes without hearing from the leader before it stands itself."),
    int("controller.quorum.append.linger.ms", "25").at_least(0).instead(LINGER)
        .doc("How long the leader collects records before it writes them."),
    int("controller.quorum.request.timeout.ms", "2000").at_least(0).instead(QUORUM_PACE)
        .doc("How long a controller waits for another one's answer."),
    int("controller.quorum.retry.backoff.ms", "20").at_least(0).low().instead(QUORUM_PACE)
        .doc("How long a controller rests before it asks again."),
    int("controller.quorum.fetch.max.bytes", "1048576").at_least(1).low().instead(QUORUM_PIECES)
        .doc("How many bytes of the metadata log are fetched at a time."),
    int("controller.quorum.fetch.snapshot.max.bytes", "1048576").at_least(1).low().instead(QUORUM_PIECES)
        .doc("How many bytes of a metadata snapshot are fetched at a time."),
    string("metadata.log.dir", "").null().high()
        .doc("The directory of the metadata log; unset, the first of `log.dirs`."),
    long("metadata.log.max.record.bytes.between.snapshots", "20971520").at_least(1).high()
        .doc("How many bytes of metadata records lead to a snapshot."),
    long("metadata.log.max.snapshot.interval.ms", "3600000").at_least(0).high()
        .doc("How old the last snapshot of the metadata may get while there are changes after it; 0 for no limit."),
    int("metadata.log.segment.bytes", "1073741824").at_least(8388608).high().instead(METADATA)
        .doc("The size of a segment of the metadata log."),
    long("metadata.log.segment.ms", "604800000").high().instead(METADATA)
        .doc("The age at which a segment of the metadata log ends."),
    long("metadata.max.retention.bytes", "104857600").high().instead(METADATA)
        .doc("How much metadata log and old snapshots are kept."),
    long("metadata.max.retention.ms", "604800000").high().instead(METADATA)
        .doc("How long metadata log and old snapshots are kept."),
    int("metadata.max.idle.interval.ms", "500").at_least(0).low().instead(METADATA)
        .doc("How often an idle controller writes a record so that followers see that it lives; 0 for never."),
    long("controller.performance.sample.period.ms", "60000").at_least(100).internal().instead(METADATA)
        .doc("How often the controller reports how it performs."),
    long("controller.performance.always.log.threshold.ms", "2000").at_least(0).internal().instead(METADATA)
        .doc("How slow an event of the controller is always reported."),
    long("internal.metadata.delete.delay.millis", "60000").low().internal().instead(METADATA)
        .doc("How long deleted files of the metadata log stay on disk."),
    int("internal.metadata.log.segment.bytes", "").null().low().internal().instead(METADATA)
        .doc("The size of a segment of the metadata log, for tests."),
    int("internal.metadata.max.batch.size.in.bytes", "8388608").low().internal().instead(METADATA)
        .doc("The largest batch in the metadata log, for tests."),
];
