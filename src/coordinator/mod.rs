//! Layer 2, pure: what the coordinators decide. A coordinator lives on the leader of a partition of an internal topic, and
//! that partition is its log: commands and the time come in, records and replies go out, and a driver appends the
//! records and holds the replies back until they are committed.
//!
//! This module sees no bytes of requests, no files, clocks or threads. Invariant: what is to survive a change of the
//! coordinator is in the records, and folding them gives it.

pub mod group;
