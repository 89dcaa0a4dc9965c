//! Subscriptions by regular expression: RE2's syntax on Rust's `regex`, which is of the same family and as safe, and when
//! the expressions of a group are matched against the topics of the cluster.
//!
//! All expressions of a group are matched together, so that one new topic makes one rebalance. It happens behind the
//! answer to a heartbeat, as in Kafka, where another thread does it: the member that brought a new expression is told
//! of its topics with its next heartbeat.

use std::collections::BTreeSet;

use ::regex::{Regex, RegexBuilder};

use super::super::{Name, Out};
use super::{ConsumerConfig, ConsumerGroup, Resolved, TopicWatch};
use crate::coordinator::Context;
use crate::types::TimestampMs;

/// The least time between two times that a group's expressions are matched.
const MIN_REFRESH_INTERVAL_MS: i64 = 10_000;

/// How large a compiled expression may be, in bytes.
const MAX_COMPILED_SIZE: usize = 1 << 20;

/// A text that is no regular expression, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{regex} is no regular expression: {reason}")]
pub struct InvalidRegex {
    pub regex: Name,
    pub reason: String,
}

/// An expression that is to match whole names.
pub(super) fn compile(regex: &Name) -> Result<Regex, InvalidRegex> {
    let translated = from_re2(regex);
    let build = |text: &str| {
        RegexBuilder::new(text).size_limit(MAX_COMPILED_SIZE).build().map_err(|error| InvalidRegex {
            regex: regex.clone(),
            reason: match error {
                ::regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
                // The last line says it; those before draw where.
                error => error
                    .to_string()
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .trim_start_matches("error: ")
                    .to_owned(),
            },
        })
    };
    // Alone first: `a)(b` would be sound between other brackets.
    build(&translated)?;
    build(&format!(r"\A(?:{translated})\z"))
}

/// What RE2 writes otherwise than Rust: `\Q...\E` quotes; in brackets, `[`, `&&`, `--` and `~~` mean nothing of their own.
fn from_re2(regex: &str) -> String {
    let mut translated = String::with_capacity(regex.len());
    let mut rest = regex;
    let mut in_class = false;
    while let Some(next) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix(r"\Q") {
            let (literal, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            translated.push_str(&::regex::escape(literal));
            rest = after;
            continue;
        }
        let mut len = next.len_utf8();
        match next {
            '\\' => {
                len += rest[1..].chars().next().map_or(0, char::len_utf8);
                translated.push_str(&rest[..len]);
            }
            '[' if in_class && !rest.starts_with("[:") => translated.push_str(r"\["),
            '[' if in_class => {
                // A class such as [:alpha:] up to its end.
                len = rest.find(":]").map_or(1, |end| end + 2);
                translated.push_str(&rest[..len]);
            }
            '[' => {
                in_class = true;
                // A bracket that closes at the very beginning is meant as itself.
                len = ["[^]", "[]", "[^"]
                    .iter()
                    .find(|start| rest.starts_with(**start))
                    .map_or(1, |start| start.len());
                translated.push_str(&rest[..len].replace(']', r"\]"));
            }
            ']' => {
                in_class = false;
                translated.push(']');
            }
            '&' | '~' if in_class => {
                translated.push('\\');
                translated.push(next);
            }
            '-' if in_class && rest.starts_with("--") => {
                len = 2;
                translated.push_str(r"-\-");
            }
            other => translated.push(other),
        }
        rest = &rest[len..];
    }
    translated
}

impl ConsumerGroup {
    /// When the expressions were matched last; `None` where none has been.
    pub(super) fn matched_at(&self) -> Option<TimestampMs> {
        self.regexes.values().next().map(|resolved| resolved.at)
    }

    /// Matches the expressions of the group, if it is time to. `last`: when they were matched, as it was before the step.
    pub(super) fn refresh_regexes(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        config: &ConsumerConfig,
        last: Option<TimestampMs>,
        out: &mut Out,
    ) {
        let now = context.now.wall;
        if self.regex_subscribers.is_empty()
            || last.is_some_and(|last| now <= last.minus(-MIN_REFRESH_INTERVAL_MS))
        {
            return;
        }
        let version = self.regexes.values().next().map_or(0, |resolved| resolved.version);
        let is_due = !self.regex_subscribers.keys().eq(self.regexes.keys())
            || version < watch.created_at().offset().0
            || last.is_none_or(|last| now > last.minus(-config.regex_refresh_interval_ms));
        if is_due {
            self.match_regexes(context, watch, out);
        }
    }

    /// Whether members that are subscribed to an expression are to have something: by the subscription that they had
    /// before, and if the expression matches nothing, nobody else would get it.
    fn has_targets(&self, regex: &Name) -> bool {
        let mut subscribers = self.members.iter().filter(|(_, member)| member.pattern() == Some(regex));
        subscribers.any(|(id, _)| self.target.get(id).is_some_and(|target| !target.is_empty()))
    }

    fn match_regexes(&mut self, context: &Context<'_>, watch: &mut TopicWatch, out: &mut Out) {
        let regexes: Vec<Name> = self.regex_subscribers.keys().cloned().collect();
        let mut has_changed = false;
        for regex in regexes {
            // One that came through another coordinator may be unknown to this one. It matches nothing.
            let topics: BTreeSet<Name> = match compile(&regex) {
                Ok(compiled) => {
                    let names = context.image.topics.iter().map(|topic| &topic.name);
                    names.filter(|name| compiled.is_match(name)).cloned().collect()
                }
                Err(_) => BTreeSet::new(),
            };
            let before = self.regexes.get(&regex).map(|resolved| &resolved.topics);
            has_changed |= match before {
                Some(before) => *before != topics,
                None => !topics.is_empty() || self.has_targets(&regex),
            };
            let resolved =
                Resolved { topics, version: context.image.version.offset().0, at: context.now.wall };
            self.write(self.regex_record(&regex, &resolved), out);
        }
        self.look_at_topics(context, watch, has_changed, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(regex: &str, name: &str) -> bool {
        compile(&regex.into()).expect("a regular expression").is_match(name)
    }

    #[test]
    fn whole_names_match() {
        assert!(matches("foo.*", "foo-1"));
        assert!(matches("foo|bar", "bar"));
        for (regex, name) in [("foo", "foo-1"), ("foo", "a-foo"), ("foo|bar", "foobar"), ("", "foo")] {
            assert!(!matches(regex, name), "{regex} matches {name}");
        }
    }

    #[test]
    fn the_syntax_is_that_of_re2() {
        for (regex, name) in [
            (r"\Qa.b\E.*", "a.bc"),
            (r"\Qa.b", "a.b"),
            (r"[[a-c]x", "ax"),
            (r"[]a]", "a"),
            (r"[^]a]", "b"),
            (r"[a&&b]", "b"),
            (r"[+--]", ","),
            (r"[[:alpha:]_]+", "a_b"),
            (r"(?i)ORDERS", "orders"),
            (r"\pL\d", "a1"),
            (r"(?P<name>x)y", "xy"),
        ] {
            assert!(matches(regex, name), "{regex} does not match {name}");
        }
        assert!(!matches(r"\Qa.b\E", "axb"));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for regex in ["[", "(", "a)(b", "*", r"(?=a)", r"(a)\1", r"\"] {
            assert!(compile(&regex.into()).is_err(), "{regex} passes");
        }
        let huge: Name = format!("({}){{1000}}", "a{1000}").into();
        assert_eq!("it is too large", compile(&huge).expect_err("too large").reason);
    }
}
