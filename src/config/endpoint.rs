//! Addresses in properties: `host:port`, voters, and listeners with their names and protocols. Knows no property.
//! Invariant: a host that is kept is not empty and has no brackets.

use std::fmt;
use std::sync::Arc;

use crate::types::NodeId;

/// A host and the port on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

impl HostPort {
    /// Reads `host:port`, where an IPv6 address may stand in brackets.
    pub fn parse(text: &str) -> Result<HostPort, String> {
        let (host, port) =
            split_port(text).ok_or_else(|| format!("'{text}' is not of the form host:port"))?;
        if host.is_empty() {
            return Err(format!("'{text}' has no host"));
        }
        Ok(HostPort { host: host.to_owned(), port })
    }

    /// Whether `text` consists of what names and addresses of hosts are made of.
    pub(super) fn is_host(text: &str) -> bool {
        !text.is_empty() && text.chars().all(is_host_letter)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn is_host_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '%' | '.' | '_' | ':')
}

/// The host (without brackets, possibly empty) and the port of `text`.
fn split_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').map_or(Some(host), |inner| inner.strip_suffix(']'))?;
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    (digits && host.chars().all(is_host_letter)).then(|| port.parse().ok().map(|port| (host, port)))?
}

/// A controller that votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    pub id: NodeId,
    pub address: HostPort,
}

impl Voter {
    /// Reads `id@host:port`.
    pub fn parse(text: &str) -> Result<Voter, String> {
        let wrong = || format!("'{text}' is not of the form id@host:port");
        let (id, address) = text.split_once('@').ok_or_else(wrong)?;
        let id = id.parse::<i32>().map_err(|_| wrong())?;
        let address = HostPort::parse(address).map_err(|_| wrong())?;
        Ok(Voter { id: NodeId(id), address })
    }
}

/// The name of a listener, in capitals.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerName(Arc<str>);

impl ListenerName {
    pub fn new(name: &str) -> ListenerName {
        ListenerName(name.trim().to_uppercase().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a listener protects what goes over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecurityProtocol {
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

impl SecurityProtocol {
    pub fn parse(text: &str) -> Option<SecurityProtocol> {
        Some(match text.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => SecurityProtocol::Plaintext,
            "SSL" => SecurityProtocol::Ssl,
            "SASL_PLAINTEXT" => SecurityProtocol::SaslPlaintext,
            "SASL_SSL" => SecurityProtocol::SaslSsl,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "PLAINTEXT",
            SecurityProtocol::Ssl => "SSL",
            SecurityProtocol::SaslPlaintext => "SASL_PLAINTEXT",
            SecurityProtocol::SaslSsl => "SASL_SSL",
        }
    }

    /// The number of this protocol in metadata records.
    pub fn id(self) -> i16 {
        match self {
            SecurityProtocol::Plaintext => 0,
            SecurityProtocol::Ssl => 1,
            SecurityProtocol::SaslPlaintext => 2,
            SecurityProtocol::SaslSsl => 3,
        }
    }
}

/// A listener: where it binds, or the address under which others reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub name: ListenerName,
    pub protocol: SecurityProtocol,
    /// No host means every interface.
    pub host: Option<String>,
    /// 0 lets the system choose.
    pub port: u16,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or("");
        if host.contains(':') {
            write!(f, "{}://[{host}]:{}", self.name, self.port)
        } else {
            write!(f, "{}://{host}:{}", self.name, self.port)
        }
    }
}

/// A listener before its protocol is looked up: name, host and port of `NAME://host:port`.
pub(super) fn parse_listener(text: &str) -> Result<(ListenerName, Option<String>, u16), String> {
    let wrong = || format!("'{text}' is not of the form NAME://host:port");
    let (name, address) = text.split_once("://").ok_or_else(wrong)?;
    let (host, port) = split_port(address).ok_or_else(wrong)?;
    if name.trim().is_empty() {
        return Err(wrong());
    }
    Ok((ListenerName::new(name), (!host.is_empty()).then(|| host.to_owned()), port))
}

#[cfg(test)]
mod tests {
    use super::{HostPort, ListenerName, Voter, parse_listener};

    #[test]
    fn addresses_with_and_without_brackets() {
        let parse = |text| {
            HostPort::parse(text).map(|address| (address.host.clone(), address.port, address.to_string()))
        };
        assert_eq!(parse("localhost:9092"), Ok(("localhost".into(), 9092, "localhost:9092".into())));
        assert_eq!(parse("[::1]:9092"), Ok(("::1".into(), 9092, "[::1]:9092".into())));
        assert_eq!(parse("::1:9092"), Ok(("::1".into(), 9092, "[::1]:9092".into())));
        for wrong in ["localhost", ":9092", "[::1:9092", "a b:1", "host:65536", "host:-1", "host:"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn voters_and_listeners() {
        assert_eq!(Voter::parse("3@[fe80::1]:9093").map(|voter| voter.id.0), Ok(3));
        for wrong in ["localhost:9093", "x@localhost:9093", "1@localhost", "1@2@localhost:9093"] {
            assert!(Voter::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_listener("plaintext://:9092"), Ok((ListenerName::new("PLAINTEXT"), None, 9092)));
        assert_eq!(
            parse_listener("CLIENTS://[::]:0"),
            Ok((ListenerName::new("clients"), Some("::".to_owned()), 0))
        );
        for wrong in ["9092", "PLAINTEXT:9092", "://host:1", "PLAINTEXT://host", "PLAINTEXT://host:-1"] {
            assert!(parse_listener(wrong).is_err(), "{wrong}");
        }
    }
}
