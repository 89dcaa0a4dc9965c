//! Our own messages between the members of the metadata quorum (keys from 30 000 on): what openraft says to its peers, the
//! long poll by which observers follow the log, the way of decisions to the leader, and how a quorum began. Only nodes of one cluster speak
//! them, on controller listeners.
//!
//! Votes, log ids, entries and memberships are bytes here, in the form in which the metadata log has them on disk.
//! A `refusal` other than 0 says why a message was not taken; the rest of the answer means nothing then.

messages! {
    /// Asks for a vote, or whether a vote would be had.
    message RaftVoteRequest (request 30000, versions "0", flexible "0+") {
        sender: Sender "0+",
        /// Whether this only asks: nothing is promised then.
        probe: bool "0+",
        vote: bytes "0+",
        last_log_id: bytes "0+",
    }
    /// Who speaks to whom.
    struct Sender {
        cluster_id: string "0+",
        node_id: int32 "0+",
        /// That of the sender's metadata directory.
        directory_id: uuid "0+",
        /// The node that is meant, -1 when any will do.
        to: int32 "0+" = -1,
        /// That of the metadata directory with which the quorum knows the node that is meant; zero when it knows none.
        to_directory: uuid "0+",
    }

    message RaftVoteResponse (response 30000, versions "0", flexible "0+") {
        refusal: int8 "0+",
        granted: bool "0+",
        vote: bytes "0+",
        last_log_id: bytes "0+",
    }

    /// The leader's entries, or none as a heartbeat.
    message RaftAppendRequest (request 30001, versions "0", flexible "0+") {
        sender: Sender "0+",
        vote: bytes "0+",
        previous: bytes "0+",
        committed: bytes "0+",
        entries: [RaftEntry] "0+",
    }
    struct RaftEntry {
        index: int64 "0+",
        entry: bytes "0+",
    }

    message RaftAppendResponse (response 30001, versions "0", flexible "0+") {
        refusal: int8 "0+",
        /// 0: all is there, 1: all up to `log_id` is, 2: the entry before the first differs, 3: there is a higher vote.
        outcome: int8 "0+",
        log_id: bytes "0+",
        vote: bytes "0+",
    }

    /// A piece of a snapshot. One without bytes asks how much of it is there.
    message RaftSnapshotRequest (request 30002, versions "0", flexible "0+") {
        sender: Sender "0+",
        vote: bytes "0+",
        snapshot_id: string "0+",
        last_log_id: bytes "0+",
        membership: bytes "0+",
        size: int64 "0+",
        offset: int64 "0+",
        chunk: bytes "0+",
    }

    message RaftSnapshotResponse (response 30002, versions "0", flexible "0+") {
        refusal: int8 "0+",
        /// Where the next piece begins.
        next_offset: int64 "0+",
        /// The whole snapshot has taken the place of the log, or is not needed.
        installed: bool "0+",
        vote: bytes "0+",
    }

    /// An observer's question for what the leader has for it, with its reply to what the leader said last.
    message ObserverPollRequest (request 30003, versions "0", flexible "0+") {
        sender: Sender "0+",
        /// The message that is answered, 0 for none.
        answered: int64 "0+",
        /// The body of the answer, in the form of the message's own response.
        answer: bytes "0+",
        max_wait_ms: int32 "0+",
        /// Whether this is the last poll: the node has become a voter, or stops.
        ends: bool "0+",
    }

    message ObserverPollResponse (response 30003, versions "0", flexible "0+") {
        refusal: int8 "0+",
        /// Whether it is the leader who answers.
        leads: bool "0+",
        leader: Leader "0+",
        /// 0 when there is nothing to say.
        message_id: int64 "0+",
        /// 1: a RaftAppendRequest, 2: a RaftSnapshotRequest.
        kind: int8 "0+",
        message: bytes "0+",
    }
    /// Who leads, as far as the node knows that was asked.
    struct Leader {
        /// -1 when it is not known.
        node_id: int32 "0+" = -1,
        host: string "0+",
        port: uint16 "0+",
    }

    /// Records that were decided on the image of version `base`.
    message ProposeRequest (request 30004, versions "0", flexible "0+") {
        sender: Sender "0+",
        base: int64 "0+",
        /// By which the sender finds the batch again.
        tag: int64 "0+",
        records: bytes "0+",
    }

    message ProposeResponse (response 30004, versions "0", flexible "0+") {
        refusal: int8 "0+",
        leader: Leader "0+",
        /// 0: applied, 1: decided on another version than the leader's, 2: this node does not lead, 3: it cannot now.
        outcome: int8 "0+",
        /// That of the leader's image after it.
        version: int64 "0+",
    }

    /// Asks for a version of the image that is known to be current.
    message ConfirmRequest (request 30005, versions "0", flexible "0+") {
        sender: Sender "0+",
    }

    message ConfirmResponse (response 30005, versions "0", flexible "0+") {
        refusal: int8 "0+",
        leader: Leader "0+",
        /// As in `ProposeResponse`.
        outcome: int8 "0+",
        version: int64 "0+",
    }

    /// Asks a voter how its quorum began.
    message RaftFoundingRequest (request 30006, versions "0", flexible "0+") {
        sender: Sender "0+",
    }

    message RaftFoundingResponse (response 30006, versions "0", flexible "0+") {
        refusal: int8 "0+",
        /// 0: the node was formatted by hand, 1: by itself, and it does not know whether the quorum is new, 2: it was new.
        state: int8 "0+",
        /// That of the answering node's metadata directory.
        directory_id: uuid "0+",
        /// The voters with which it was new.
        founders: [Founder] "0+",
    }
    struct Founder {
        node_id: int32 "0+",
        directory_id: uuid "0+",
    }
}

exchanges! {
    RaftVoteRequest => RaftVoteResponse,
    RaftAppendRequest => RaftAppendResponse,
    RaftSnapshotRequest => RaftSnapshotResponse,
    ObserverPollRequest => ObserverPollResponse,
    ProposeRequest => ProposeResponse,
    ConfirmRequest => ConfirmResponse,
    RaftFoundingRequest => RaftFoundingResponse,
}
