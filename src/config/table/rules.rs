//! Rules for the values of single properties that no general validator covers, each with the words that describe it.
//! Knows no table and no other property. Invariant: pure functions.

use super::super::endpoint::{HostPort, Voter};
use super::super::value::Value;

pub(super) const GZIP_LEVEL: &str = "1 to 9, or -1";
pub(super) const VOTERS: &str = "entries of the form id@host:port";
pub(super) const BOOTSTRAP_SERVERS: &str = "entries of the form host:port";
pub(super) const THROTTLED_REPLICAS: &str = "entries of the form partition:broker, or *";
pub(super) const OFFSET_RESET: &str = "earliest, latest, or by_duration:PnDTnHnMn.nS";
pub(super) const IP_OVERRIDES: &str = "entries of the form host:count";
pub(super) const CLIENT_MATCH: &str = "entries of the form property=pattern";

/// The properties of a client that a subscription to metrics may look at.
const CLIENT_PROPERTIES: &[&str] = &[
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

fn entries(value: &Value) -> &[String] {
    match value {
        Value::List(entries) => entries,
        _ => &[],
    }
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

pub(super) fn gzip_level(value: &Value) -> Result<(), String> {
    match value {
        Value::Integer(-1 | 1..=9) => Ok(()),
        _ => Err("must be between 1 and 9, or -1".to_owned()),
    }
}

pub(super) fn voters(value: &Value) -> Result<(), String> {
    entries(value).iter().try_for_each(|entry| Voter::parse(entry).map(drop))
}

pub(super) fn bootstrap_servers(value: &Value) -> Result<(), String> {
    entries(value).iter().try_for_each(|entry| HostPort::parse(entry).map(drop))
}

pub(super) fn throttled_replicas(value: &Value) -> Result<(), String> {
    let is_replica = |entry: &String| match entry.split_once(':') {
        Some((partition, broker)) => is_digits(partition) && is_digits(broker),
        None => entry.is_empty(),
    };
    let entries = entries(value);
    if entries.concat() == "*" || entries.iter().all(is_replica) {
        Ok(())
    } else {
        Err("must be * or entries of the form partition:broker, separated by commas".to_owned())
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

pub(super) fn offset_reset(value: &Value) -> Result<(), String> {
    let text = text(value);
    if matches!(text, "earliest" | "latest") {
        return Ok(());
    }
    match text.strip_prefix("by_duration:") {
        Some(duration) if is_duration(duration) => Ok(()),
        Some(_) => Err("by_duration needs a positive ISO 8601 duration, such as PT1H30M".to_owned()),
        None => Err("must be earliest, latest or by_duration:PnDTnHnMn.nS".to_owned()),
    }
}

/// Whether `text` is an ISO 8601 duration in days, hours, minutes and seconds that is not negative.
fn is_duration(text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let Some(rest) = text.strip_prefix('P') else { return false };
    let (days, time) = match rest.split_once('T') {
        Some((days, time)) => (days, Some(time)),
        None => (rest, None),
    };
    let days_are_right = days.is_empty() || days.strip_suffix('D').is_some_and(is_digits);
    let time_is_right = match time {
        Some(time) => !time.is_empty() && is_time(time),
        None => !days.is_empty(),
    };
    days_are_right && time_is_right
}

fn is_time(mut rest: &str) -> bool {
    for unit in ['H', 'M'] {
        if let Some((number, after)) = rest.split_once(unit) {
            if !is_digits(number) {
                return false;
            }
            rest = after;
        }
    }
    rest.is_empty()
        || rest.strip_suffix('S').is_some_and(|seconds| match seconds.split_once('.') {
            Some((whole, fraction)) => is_digits(whole) && is_digits(fraction) && fraction.len() <= 9,
            None => is_digits(seconds),
        })
}

pub(super) fn ip_overrides(value: &Value) -> Result<(), String> {
    parse_ip_overrides(text(value)).map(drop)
}

/// The limits that `max.connections.per.ip.overrides` sets.
pub(in super::super) fn parse_ip_overrides(text: &str) -> Result<Vec<(String, i32)>, String> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(ip_override).collect()
}

fn ip_override(entry: &str) -> Result<(String, i32), String> {
    let (host, count) =
        entry.rsplit_once(':').ok_or_else(|| format!("'{entry}' is not of the form host:count"))?;
    let (host, count) = (host.trim(), count.trim());
    match count.parse::<i32>() {
        Ok(count) if HostPort::is_host(host) => Ok((host.to_owned(), count)),
        Ok(_) => Err(format!("'{host}' is not an address or the name of a host")),
        Err(_) => Err(format!("'{count}' is not a number of connections")),
    }
}

pub(super) fn client_match(value: &Value) -> Result<(), String> {
    entries(value).iter().try_for_each(|entry| match entry.split_once('=') {
        Some((property, pattern)) if !pattern.is_empty() && !pattern.contains('=') => {
            if !CLIENT_PROPERTIES.contains(&property.trim()) {
                return Err(format!("'{}' is not one of {}", property.trim(), CLIENT_PROPERTIES.join(", ")));
            }
            pattern_is_closed(pattern.trim())
                .then_some(())
                .ok_or_else(|| format!("'{pattern}' is not a pattern"))
        }
        _ => Err(format!("'{entry}' is not of the form property=pattern")),
    })
}

/// Whether every bracket of a regular expression is closed and every quantifier has something to repeat: what mostly
/// goes wrong in one.
fn pattern_is_closed(pattern: &str) -> bool {
    let mut letters = pattern.chars();
    let (mut groups, mut in_class, mut repeatable) = (0_u32, false, false);
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.next().is_none() => return false,
            ']' if in_class => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '(' => groups += 1,
            ')' if groups == 0 => return false,
            ')' => groups -= 1,
            '*' | '+' | '?' if !repeatable => return false,
            _ => {}
        }
        repeatable = !matches!(letter, '(' | '|') || (letter == '(' && letters.as_str().starts_with('?'));
    }
    groups == 0 && !in_class
}

#[cfg(test)]
mod tests {
    use super::super::super::def::Scope;
    use super::super::table;

    fn check(scope: Scope, name: &str, text: &str) -> Result<(), String> {
        table(scope).get(name).unwrap().parse(text).map(drop)
    }

    #[test]
    fn rules_accept_what_kafka_accepts() {
        for text in ["", "*", "0:1", "0:1,3:2"] {
            assert_eq!(check(Scope::Topic, "leader.replication.throttled.replicas", text), Ok(()), "{text}");
        }
        for text in ["earliest", "latest", "by_duration:PT1H", "by_duration:P2D", "by_duration:P1DT2H3M4.5S"]
        {
            assert_eq!(check(Scope::Group, "share.auto.offset.reset", text), Ok(()), "{text}");
        }
        for text in
            ["client_id=app.*", "client_id=a|b,client_software_name=(?i)java", "client_source_port=[0-9]+"]
        {
            assert_eq!(check(Scope::ClientMetrics, "match", text), Ok(()), "{text}");
        }
        for text in ["-1", "1", "9"] {
            assert_eq!(check(Scope::Topic, "compression.gzip.level", text), Ok(()), "{text}");
        }
        for text in ["", "127.0.0.1:3", "hostA:1, ::1:2"] {
            assert_eq!(check(Scope::Broker, "max.connections.per.ip.overrides", text), Ok(()), "{text}");
        }
    }

    #[test]
    fn rules_refuse_what_kafka_refuses() {
        let refused = [
            (Scope::Topic, "leader.replication.throttled.replicas", "nonsense"),
            (Scope::Topic, "leader.replication.throttled.replicas", "1:"),
            (Scope::Group, "share.auto.offset.reset", "sometimes"),
            (Scope::Group, "share.auto.offset.reset", "by_duration:PT"),
            (Scope::Group, "share.auto.offset.reset", "by_duration:-PT1H"),
            (Scope::ClientMetrics, "match", "client_id"),
            (Scope::ClientMetrics, "match", "planet=earth"),
            (Scope::ClientMetrics, "match", "client_id=[("),
            (Scope::ClientMetrics, "match", "client_id=*"),
            (Scope::ClientMetrics, "interval.ms", "5"),
            (Scope::Topic, "compression.gzip.level", "0"),
            (Scope::Broker, "max.connections.per.ip.overrides", "127.0.0.1"),
            (Scope::Broker, "controller.quorum.voters", "localhost:9093"),
            (Scope::Broker, "controller.quorum.bootstrap.servers", "localhost"),
        ];
        for (scope, name, text) in refused {
            assert!(check(scope, name, text).is_err(), "{name}={text}");
        }
    }
}
