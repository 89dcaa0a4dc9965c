//! What happened, as a hash that tells whether two runs were the same, and as lines when somebody wants to read them.
//!
//! Must not know what the lines mean. Invariant: the hash depends on every line and on their order.

use std::fmt::{self, Write};

#[derive(Debug)]
pub struct Trace {
    hash: u64,
    pub lines: u64,
    /// Print every line.
    prints: bool,
}

struct Hashing<'a>(&'a mut u64);

impl Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            *self.0 = (*self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

impl Trace {
    pub fn new(prints: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: 0, prints }
    }

    pub fn note(&mut self, at: i64, what: fmt::Arguments<'_>) {
        self.lines += 1;
        let mut hashing = Hashing(&mut self.hash);
        // Hashing does not fail.
        let _ = writeln!(hashing, "{at} {what}");
        if self.prints {
            eprintln!("{at:>7} {what}");
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}
