//! What happened, as a hash that tells whether two runs were the same, and as lines when somebody wants to read them.
//!
//! Must not know what the lines mean. Invariant: the hash depends on every line and on their order.

use std::fmt::{self, Write};

use crate::wire::batch::crc_append;

#[derive(Debug)]
pub struct Trace {
    hash: u64,
    pub lines: u64,
    /// The line that is being made.
    line: String,
    /// Print every line.
    prints: bool,
}

impl Trace {
    pub fn new(prints: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: 0, line: String::new(), prints }
    }

    pub fn note(&mut self, at: i64, what: fmt::Arguments<'_>) {
        self.lines += 1;
        self.line.clear();
        // A string takes everything.
        let _ = write!(self.line, "{at:>7} {what}");
        let mark = u64::from(crc_append(0, self.line.as_bytes()));
        self.hash = (self.hash ^ mark).wrapping_mul(0x0000_0100_0000_01b3);
        if self.prints {
            eprintln!("{}", self.line);
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}
