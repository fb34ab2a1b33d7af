//! The header `tracestate`: a list of what tracing systems add for themselves. We only pass it on.

/// The most members, and what everybody can pass on.
const MEMBERS: usize = 32;
const LENGTH: usize = 512;
/// What is given up first, when it is too long.
const LONG_MEMBER: usize = 128;

/// The list as it is passed on; `None`: it is empty or malformed, and a part of such a list means nothing.
pub(crate) fn read(header: &[u8]) -> Option<Box<str>> {
    let header = std::str::from_utf8(header).ok()?;
    let blank = [' ', '\t'];
    let members = || header.split(',').map(|member| member.trim_matches(blank)).filter(|m| !m.is_empty());
    if members().count() > MEMBERS || !members().all(is_member) {
        return None;
    }
    let keys = || members().filter_map(|member| member.split_once('=')).map(|(key, _)| key);
    if keys().enumerate().any(|(at, key)| keys().take(at).any(|before| before == key)) {
        return None;
    }
    let mut kept: Vec<_> = members().collect();
    while length(&kept) > LENGTH {
        match kept.iter().rposition(|member| member.len() > LONG_MEMBER) {
            Some(long) => drop(kept.remove(long)),
            None => drop(kept.pop()),
        }
    }
    (!kept.is_empty()).then(|| kept.join(",").into())
}

fn length(members: &[&str]) -> usize {
    members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1)
}

fn is_member(member: &str) -> bool {
    member.split_once('=').is_some_and(|(key, value)| is_key(key) && is_value(value))
}

/// A name, or a tenant at a system.
fn is_key(key: &str) -> bool {
    let named =
        |name: &str| name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/'));
    let letter = |name: &str| name.starts_with(|c: char| c.is_ascii_lowercase());
    match key.split_once('@') {
        None => (1..=256).contains(&key.len()) && letter(key) && named(key),
        Some((tenant, system)) => {
            let first = tenant.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
            let lengths = tenant.len() <= 241 && system.len() <= 14;
            first && letter(system) && lengths && named(tenant) && named(system)
        }
    }
}

fn is_value(value: &str) -> bool {
    let printable = value.bytes().all(|b| matches!(b, 0x20..=0x7e) && b != b',' && b != b'=');
    (1..=256).contains(&value.len()) && printable && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed_on(header: &str) -> Option<String> {
        read(header.as_bytes()).map(String::from)
    }

    #[test]
    fn a_list_is_passed_on_as_it_came() {
        for header in
            ["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "fw529a3039@dt=FfAz", "a=1", "a/*-_b= x", "0t@sys=1"]
        {
            assert_eq!(passed_on(header).as_deref(), Some(header));
        }
        assert_eq!(
            passed_on(" foo=1 ,\t, bar=2,").as_deref(),
            Some("foo=1,bar=2"),
            "blanks and empty members"
        );
    }

    #[test]
    fn a_malformed_list_is_not_passed_on_in_parts() {
        let bad = [
            "",
            " ,\t",
            "foo",
            "foo=1,bar",
            "foo=1=2",
            "=1",
            "foo=",
            "Foo=1",
            "foo =1",
            "foo@=1",
            "@foo=1",
            "1foo=1",
            "foo@1=2",
            "föö=1",
            "foo=\u{e9}",
            "foo=a\u{7}",
            "foo=1,foo=2",
            "foo@bar@baz=1",
        ];
        for header in bad {
            assert_eq!(passed_on(header), None, "{header:?}");
        }
        assert_eq!(read(b"foo=\xff"), None);
    }

    #[test]
    fn lengths_are_those_of_the_specification() {
        let member = |key: usize, value: usize| format!("{}={}", "k".repeat(key), "v".repeat(value));
        assert!(passed_on(&member(256, 255)).is_some());
        assert_eq!((passed_on(&member(257, 1)), passed_on(&member(1, 257))), (None, None));
        let tenant =
            |tenant: usize, system: usize| format!("{}@{}=1", "t".repeat(tenant), "s".repeat(system));
        assert!(passed_on(&tenant(241, 14)).is_some());
        assert_eq!((passed_on(&tenant(242, 14)), passed_on(&tenant(241, 15))), (None, None));
        let members = |n: usize| (0..n).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        assert_eq!(passed_on(&members(32)), Some(members(32)));
        assert_eq!(passed_on(&members(33)), None);
    }

    #[test]
    fn what_is_too_long_loses_its_longest_members_and_then_its_last() {
        let member = |key: char, value: usize| format!("{key}={}", "v".repeat(value));
        let list = [member('a', 100), member('b', 200), member('c', 100), member('d', 200), member('e', 100)];
        let kept = [&list[0][..], &list[1], &list[2]].join(",") + "," + &list[4];
        assert_eq!(passed_on(&list.join(",")), Some(kept), "the last of the long ones is enough");
        let short: Vec<_> = ('a'..='f').map(|key| member(key, 98)).collect();
        assert_eq!(passed_on(&short.join(",")), Some(short[..5].join(",")));
    }
}
