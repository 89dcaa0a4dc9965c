//! The broker's part in transactions beside their coordinators: markers that are written here (`markers`) or carried to the
//! brokers that lead the partitions (`sender`, with `post` for those of other brokers), and the question to a coordinator before a transaction begins in a
//! partition (`inquiry`). `peers` keeps the connections to other brokers for both.
//!
//! Must not know how transactions are decided. Invariant: a marker is written until its partition has it or is gone, as long
//! as its coordinator is here.

pub mod inquiry;
pub mod markers;
mod answers;
mod peers;
mod post;
pub mod sender;

pub use inquiry::{Inquiry, NotPart, TransactionInquiry};
pub use markers::{MarkerError, MarkerWrite, MarkerWriter};
#[cfg(test)]
pub(crate) use peers::Carried;
pub use peers::{PeerError, Peers};
pub use sender::MarkerSender;
