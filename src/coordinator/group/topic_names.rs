//! Names of topics as small numbers, so that each of a million offsets need not carry its topic's name. Knows nothing of
//! what is kept under the numbers; whoever keeps something holds the number by `acquire` and lets it go by `release`.
//! Invariant: a name has one number as long as somebody holds it.

use std::collections::HashMap;

use super::Name;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicNumber(u32);

#[derive(Debug, Default)]
pub struct TopicNames {
    numbers: HashMap<Name, TopicNumber>,
    names: Vec<Held>,
    /// Numbers that nobody holds.
    free: Vec<TopicNumber>,
}

#[derive(Debug)]
struct Held {
    name: Name,
    by: usize,
}

impl TopicNames {
    /// The number of a name that somebody holds.
    pub fn number(&self, name: &str) -> Option<TopicNumber> {
        self.numbers.get(name).copied()
    }

    pub fn name(&self, number: TopicNumber) -> &Name {
        &self.names[number.0 as usize].name
    }

    /// The number of a name, held once more.
    pub fn acquire(&mut self, name: &str) -> TopicNumber {
        if let Some(number) = self.number(name) {
            self.names[number.0 as usize].by += 1;
            return number;
        }
        let name: Name = name.into();
        let held = Held { name: name.clone(), by: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                self.names[number.0 as usize] = held;
                number
            }
            None => {
                let number = u32::try_from(self.names.len());
                assert!(number.is_ok(), "there are more topics than numbers");
                self.names.push(held);
                TopicNumber(number.unwrap_or(u32::MAX))
            }
        };
        self.numbers.insert(name, number);
        number
    }

    /// A number is held once less.
    pub fn release(&mut self, number: TopicNumber) {
        let held = &mut self.names[number.0 as usize];
        assert!(held.by > 0, "a topic's number is let go by who does not hold it");
        held.by -= 1;
        if held.by == 0 {
            let name = std::mem::take(&mut held.name);
            self.numbers.remove(&name);
            self.free.push(number);
        }
    }
}

#[cfg(test)]
impl TopicNames {
    pub fn uses(&self, number: TopicNumber) -> usize {
        self.names[number.0 as usize].by
    }

    /// How many names are held.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_lives_as_long_as_it_is_held() {
        let mut names = TopicNames::default();
        let (a, b) = (names.acquire("a"), names.acquire("b"));
        assert_eq!(names.acquire("a"), a);
        names.release(a);
        assert_eq!((names.number("a"), &**names.name(a)), (Some(a), "a"));
        names.release(a);
        assert_eq!(names.number("a"), None);
        // The number is used again, for another name.
        assert_eq!(names.acquire("c"), a);
        assert_eq!((names.number("b"), names.number("c")), (Some(b), Some(a)));
    }
}
