//! Compaction: of the records with one key, the last one stays. Kafka's cleaner in parts of its own.
//!
//! - `plan`: how much is dirty, whether it is due, and in which groups of segments it is done
//! - `offset_map`: where the last record of each key is, in bounded memory
//! - `transactions`, `filter`: what becomes of a batch
//! - `clean`: reads and writes segments by these; `swap`: the log takes the result over
//!
//! A compacted log has the offsets that it had, with gaps. Where Kafka would leave a gap at the end of a segment, an empty batch
//! stays: so each segment still ends where the next begins, and recovery can tell what is compacted from what is lost.

mod clean;
mod filter;
mod offset_map;
mod plan;
mod swap;
mod transactions;
#[cfg(test)]
mod tests;

pub use clean::{Basis, CleanError, CleanLimits, CleanStats, Stopped, Watch, clean};
pub(super) use filter::unpacked;
pub use filter::{DamagedBatch, LastRecord, LastRecords};
pub use offset_map::MapLimits;
pub use plan::Dirt;
pub use swap::{Cleaned, SwapError};
