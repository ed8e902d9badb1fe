//! `/etc/hosts` (hosts(5)): the full name of a machine whose own has no domain.

/// The first name with a domain on a line that names `short`; `short` itself if it has one, or if there is none.
pub(in crate::measure) fn full_name(hosts: &[u8], short: &str) -> String {
    let hosts = String::from_utf8_lossy(hosts);
    if short.contains('.') {
        return short.to_owned();
    }
    let full = hosts.lines().find_map(|line| {
        let line = line.split('#').next()?;
        let mut names = line.split_whitespace().skip(1);
        let is_named = names.clone().any(|name| name.eq_ignore_ascii_case(short));
        let of_short = |name: &&str| {
            let host = name.split_once('.').map(|(host, _)| host);
            host.is_some_and(|host| host.eq_ignore_ascii_case(short))
        };
        is_named.then(|| names.find(of_short))?
    });
    full.unwrap_or(short).to_owned()
}
