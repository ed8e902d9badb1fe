//! Where a shadow is, as it is written on the command line.

use std::fmt;
use std::path::PathBuf;

/// Where a shadow is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A socket of this machine: `unix:PATH`.
    Unix(PathBuf),
}

impl Address {
    /// Reads one; a relative name is made absolute.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => std::path::absolute(path)
                .map(Address::Unix)
                .map_err(|error| error.to_string()),
            _ => Err("expected unix:PATH".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_back_as_it_is_shown() {
        let address = Address::parse("unix:/tmp/a b").expect("sound");
        assert_eq!(address, Address::Unix("/tmp/a b".into()));
        assert_eq!(Address::parse(&address.to_string()), Ok(address));
        for text in ["", "unix:", "/tmp/socket", "tls:host:1", "UNIX:/tmp/socket"] {
            assert_eq!(
                Address::parse(text),
                Err("expected unix:PATH".to_owned()),
                "{text}"
            );
        }
    }
}
