//! Users, as `/etc/passwd` has them.
//!
//! # What callers may rely on
//! Only that file is read. The C library would load what `nsswitch.conf` names beside it, and a static program that does so ends with
//! SIGSEGV (`clippy.toml` keeps its functions away). Users of a directory service have no name here, but those who run the command have that of `$USER`.

use nix::unistd::Uid;
use std::fs;

/// Where they are.
const USERS: &str = "/etc/passwd";

/// A line of the file.
#[derive(Debug, PartialEq, Eq)]
struct User<'t> {
    name: &'t str,
    uid: u32,
    home: &'t str,
}

/// What a line tells; none: it is none of a user.
fn user(line: &str) -> Option<User<'_>> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, _, _, home, _] = fields[..] else {
        return None;
    };
    let uid = uid.parse().ok()?;
    (!name.is_empty()).then_some(User { name, uid, home })
}

fn users() -> String {
    let bytes = fs::read(USERS).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn name_in(users: &str, uid: u32) -> Option<String> {
    let mut users = users.lines().filter_map(user);
    let found = users.find(|user| user.uid == uid)?;
    Some(found.name.to_owned())
}

fn home_in(users: &str, name: &str) -> Option<String> {
    let mut users = users.lines().filter_map(user);
    let found = users.find(|user| user.name == name)?;
    Some(found.home.to_owned())
}

/// The user's name, or number if nobody knows that.
pub(crate) fn name_of(uid: Uid) -> String {
    let own = || {
        let user = std::env::var("USER").ok();
        user.filter(|name| uid == Uid::current() && !name.is_empty())
    };
    let found = name_in(&users(), uid.as_raw()).or_else(own);
    found.unwrap_or_else(|| uid.to_string())
}

/// The home of a user.
pub(crate) fn home_of(name: &str) -> Option<String> {
    home_in(&users(), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "root:x:0:0:root:/root:/bin/bash\n# no user\n+::::::\n\
        ann:x:1000:1000:Ann, Room 7:/home/ann:/bin/sh\nbad:x:many:0::/:/bin/sh\nshort:x:7\nann:x:1001:1::/second:/bin/sh";

    #[test]
    fn users_are_found_by_number_and_by_name() {
        assert_eq!(name_in(TEXT, 0).as_deref(), Some("root"));
        assert_eq!(name_in(TEXT, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(TEXT, 7), None);
        assert_eq!(home_in(TEXT, "ann").as_deref(), Some("/home/ann"));
        for name in ["nosuchuser", "bad", "short", "", "+"] {
            assert_eq!(home_in(TEXT, name), None, "{name}");
        }
    }

    #[test]
    fn a_number_without_a_name_is_itself() {
        let nobody = Uid::from_raw(3_999_999_999);
        assert_eq!(name_of(nobody), "3999999999");
    }
}
