//! Properties of transactions.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, int, short};
use super::NO_TXN;

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    int("transactional.id.expiration.ms", "604800000").at_least(1).high()
        .doc("After how long without a transaction a transactional id is forgotten."),
    int("transaction.max.timeout.ms", "900000").at_least(1).high()
        .doc("The longest timeout that a transaction may ask for."),
    boolean("transaction.two.phase.commit.enable", "false").low().instead(NO_TXN)
        .doc("Whether transactions of an outer coordinator, without a timeout, are allowed."),
    short("transaction.state.log.replication.factor", "3").at_least(1).high()
        .doc("How many replicas the topic of transactions gets when it is created."),
    int("transaction.state.log.min.isr", "2").at_least(1).high()
        .doc("How many replicas in sync a write to the topic of transactions needs."),
    int("transaction.state.log.num.partitions", "50").at_least(1).high()
        .doc("How many partitions the topic of transactions has; not to be changed later."),
    int("transaction.state.log.segment.bytes", "104857600").at_least(1).high()
        .doc("The size of a segment of the topic of transactions."),
    int("transaction.state.log.load.buffer.size", "5242880").at_least(1).high()
        .doc("How many bytes are read at a time when transactions are loaded."),
    int("transaction.abort.timed.out.transaction.cleanup.interval.ms", "10000").at_least(1).low()
        .doc("How often transactions past their timeout are aborted."),
    int("transaction.remove.expired.transaction.cleanup.interval.ms", "3600000").at_least(1).low()
        .doc("How often forgotten transactional ids are removed."),
    boolean("transaction.partition.verification.enable", "true").low().cluster_wide()
        .doc("Whether a write is checked against an open transaction."),
    int("add.partitions.to.txn.retry.backoff.ms", "20").at_least(1).high()
        .doc("How long adding a partition waits for the transaction before to end, at first."),
    int("add.partitions.to.txn.retry.backoff.max.ms", "100").at_least(0).high()
        .doc("The same at most."),
];
