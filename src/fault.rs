//! Deliberate faults, to show that laws and simulations find them. A test turns one on for its thread; outside of tests
//! there is nothing to turn on, and the questions compile to `false`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    // Of a follower.
    /// What is only appended is reported as flushed.
    ReportsUnflushed,
    /// The last fetched epoch is not sent, so no divergence is noticed.
    HidesLastEpoch,
    /// A divergence is answered by cutting to the high watermark less one.
    CutsBelowHighWatermark,
    /// The leader's high watermark is taken over also when it is lower.
    HighWatermarkFalls,
    /// Answers to earlier questions are applied.
    TakesStaleAnswers,
    /// A pause never ends.
    SleepsForEver,

    // Of a leader.
    /// The high watermark, and what waits for it, counts what is appended and not flushed.
    CommitsUnflushed,
    /// A replica that is to leave the in-sync set is no longer counted before the controller has taken it out.
    LosesIsrShrink,
    /// A replica joins the in-sync set before it has caught up.
    ExpandsTooEarly,
    /// Answers for acks=all do not wait for the high watermark.
    AcknowledgesEarly,
    /// A follower is where its last fetch says, also when a later one came before.
    TakesLateReports,

    // Of the metadata.
    /// A replica outside the in-sync set is as good a leader as any.
    ElectsOutsideIsr,
    /// Another leader has the epoch of the one before.
    SkipsEpochBump,
    /// A replica that has lost its data stays in sync and eligible.
    KeepsLostReplicas,
    /// What a controller has decided by what it knows takes effect in the term of the next one.
    TakesPastTerms,

    // Of logs.
    /// Followers take no note of the producers of what they copy.
    ForgetsProducers,
    /// What follows the snapshot of the producers is not noted when a log is opened or cut.
    TrustsSnapshots,
    /// A sync that failed counts as done.
    IgnoresFailedSync,
    /// What comes behind a batch that was turned away is looked at as if that had never come.
    ForgetsTurnedAway,

    // Of what is damaged on disk.
    /// Whoever reads from disk gets what is there.
    ServesDamaged,
    /// What another replica has is taken and not written.
    ForgetsToMend,
    /// An index is believed.
    TrustsIndexes,

    // Of transactions and groups.
    /// An open transaction does not hold the last stable offset back.
    ForgetsOpenTransactions,
    /// A record of a transaction that has ended is appended.
    TakesLateRecords,
    /// A coordinator answers before what it has decided is committed.
    AnswersEarly,
    /// An EndTxn counts for the transaction that is open, whichever it was meant for.
    EndsAnyTransaction,
    /// Offsets count when they come, and not when their transaction is committed.
    CommitsPendingOffsets,
    /// A member is given partitions that another has not given up.
    SharesPartitions,
    /// Another generation of a group has the number of the one before.
    SkipsGeneration,
}

#[cfg(test)]
impl Fault {
    pub(crate) const OF_FOLLOWER: [Fault; 6] = [
        Fault::ReportsUnflushed,
        Fault::HidesLastEpoch,
        Fault::CutsBelowHighWatermark,
        Fault::HighWatermarkFalls,
        Fault::TakesStaleAnswers,
        Fault::SleepsForEver,
    ];
    pub(crate) const OF_LEADER: [Fault; 4] =
        [Fault::CommitsUnflushed, Fault::LosesIsrShrink, Fault::ExpandsTooEarly, Fault::AcknowledgesEarly];
    /// It costs time and no more, for what a leader believes of a follower is then less than what is true, until the next
    /// report: the laws of a pair, which look at what it believes, find it.
    pub(crate) const OF_PAIR: [Fault; 1] = [Fault::TakesLateReports];
    /// Those that only show where all parts play together.
    pub(crate) const OF_CLUSTER: [Fault; 8] = [
        Fault::ElectsOutsideIsr,
        Fault::SkipsEpochBump,
        Fault::KeepsLostReplicas,
        Fault::TakesPastTerms,
        Fault::ForgetsProducers,
        Fault::TrustsSnapshots,
        Fault::IgnoresFailedSync,
        Fault::ForgetsTurnedAway,
    ];
    /// Those that take disks whose bits turn over.
    pub(crate) const OF_DISKS: [Fault; 2] = [Fault::ServesDamaged, Fault::ForgetsToMend];
    /// One that takes an index of which a certain bit turns over: the log's own tests find it, which turn over each.
    pub(crate) const OF_READERS: [Fault; 1] = [Fault::TrustsIndexes];
    /// Those that take transactions or groups to show.
    pub(crate) const OF_COORDINATORS: [Fault; 7] = [
        Fault::ForgetsOpenTransactions,
        Fault::TakesLateRecords,
        Fault::AnswersEarly,
        Fault::EndsAnyTransaction,
        Fault::CommitsPendingOffsets,
        Fault::SharesPartitions,
        Fault::SkipsGeneration,
    ];
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn is_active(fault: Fault) -> bool {
    ACTIVE.get() == Some(fault)
}

#[cfg(not(test))]
pub(crate) const fn is_active(_: Fault) -> bool {
    false
}

/// Runs `test` with the fault.
#[cfg(test)]
pub(crate) fn with<T>(fault: Fault, test: impl FnOnce() -> T) -> T {
    ACTIVE.set(Some(fault));
    let result = test();
    ACTIVE.set(None);
    result
}
