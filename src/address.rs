//! Where a shadow is, as it is written on the command line.

use std::fmt;
use std::path::PathBuf;

/// Where a shadow is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A socket of this machine: `unix:PATH`.
    Unix(PathBuf),
    /// A port, through TLS: `tls:HOST:PORT`.
    Tls {
        /// Name or number; an IPv6 address without brackets.
        host: String,
        /// 0, where one listens: any.
        port: u16,
    },
    /// Our standard input and output: `stdio`.
    Stdio,
}

const EXPECTED: &str = "expected unix:PATH, tls:HOST:PORT or stdio";

impl Address {
    /// Reads one; a relative name is made absolute.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "stdio" {
            return Ok(Address::Stdio);
        }
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => std::path::absolute(path)
                .map(Address::Unix)
                .map_err(|error| error.to_string()),
            Some(("tls", place)) => Self::parse_port(place).ok_or_else(|| EXPECTED.to_owned()),
            _ => Err(EXPECTED.to_owned()),
        }
    }

    fn parse_port(place: &str) -> Option<Self> {
        let (host, port) = place.rsplit_once(':')?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let bracketed = bare.is_some();
        let host = bare.unwrap_or(host);
        // Where a port begins would be a guess.
        if host.is_empty() || host.contains(':') != bracketed {
            return None;
        }
        Some(Address::Tls {
            host: host.to_owned(),
            port: port.parse().ok()?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tls { host, port } if host.contains(':') => write!(f, "tls:[{host}]:{port}"),
            Address::Tls { host, port } => write!(f, "tls:{host}:{port}"),
            Address::Stdio => f.write_str("stdio"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_back_as_it_is_shown() {
        let tls = |host: &str, port| Address::Tls {
            host: host.to_owned(),
            port,
        };
        for (text, address) in [
            ("unix:/tmp/a b", Address::Unix("/tmp/a b".into())),
            ("tls:home.example:4711", tls("home.example", 4711)),
            ("tls:10.0.0.1:0", tls("10.0.0.1", 0)),
            ("tls:[fe80::1]:80", tls("fe80::1", 80)),
            ("stdio", Address::Stdio),
        ] {
            assert_eq!(Address::parse(text), Ok(address.clone()), "{text}");
            assert_eq!(address.to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "/tmp/socket",
            "UNIX:/tmp/socket",
            "tls:host",
            "tls::1",
            "tls:host:",
            "tls:host:65536",
            "tls:fe80::1:80",
            "tls:[host]:80",
            "tcp:host:80",
        ] {
            assert_eq!(Address::parse(text), Err(EXPECTED.to_owned()), "{text}");
        }
    }
}
