//! What lies in one of our directories and is none of our files: it is kept, and told in one line.
//!
//! Must not know what is ours. Invariant: however much there is, a few names are remembered.

use std::fmt;

/// So many names are told.
const TOLD_MAX: usize = 5;

/// The first names, by the alphabet, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    first: Vec<String>,
    count: usize,
}

impl Foreign {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn count(&self) -> usize {
        self.count
    }
}

impl FromIterator<String> for Foreign {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Foreign {
        let mut foreign = Foreign::default();
        for name in names {
            foreign.count += 1;
            let at = foreign.first.partition_point(|known| *known < name);
            if at < TOLD_MAX {
                foreign.first.insert(at, name);
                foreign.first.truncate(TOLD_MAX);
            }
        }
        foreign
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_are_named() {
        let of = |names: &str| names.chars().map(String::from).collect::<Foreign>();
        assert!(of("").is_empty());
        assert_eq!(of("ba").to_string(), "a, b");
        assert_eq!(
            (of("gfedcba").to_string().as_str(), of("gfedcba").count()),
            ("a, b, c, d, e and 2 more", 7)
        );
    }
}
