//! Pure: the names of the sockets, and how the kernel lists them.

/// Fields of a line of `/proc/net/unix` before the name: address, references, protocol, flags, type, state, inode.
const FIELDS_BEFORE_NAME: usize = 7;

/// Position and value of the flags of a socket that listens (`__SO_ACCEPTCON`).
const LISTENING: (usize, &str) = (3, "00010000");

/// Position and value of the type `SOCK_STREAM`.
const STREAM: (usize, &str) = (4, "0001");

/// Number of hexadecimal digits of the random part.
const RANDOM_DIGITS: usize = 32;

/// Returns the inode of a namespace from the link of the kernel, such as `pid:[4026531836]`.
pub(super) fn parse_namespace(link: &str) -> Option<u64> {
    link.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns the common beginning of the names of one program in one PID namespace.
pub(super) fn prefix(program: &str, namespace: u64) -> String {
    format!("{program}.{namespace}.")
}

/// Returns the name with this random part.
pub(super) fn full_name(prefix: &str, random: u128) -> String {
    format!("{prefix}{random:0RANDOM_DIGITS$x}")
}

/// Returns the name that a line of `/proc/net/unix` lists, if a stream socket listens there and the name has the prefix
/// and a random part. The kernel shows the NUL byte before an abstract name as `@`. A name of another program may
/// contain any bytes, also the end of a line, so a listed socket may not exist.
pub(super) fn listed_name(line: &[u8], prefix: &str) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?;
    let fields: Vec<_> = line.split_whitespace().take(FIELDS_BEFORE_NAME + 2).collect();
    let has = |(position, value): (usize, &str)| fields.get(position) == Some(&value);
    if fields.len() != FIELDS_BEFORE_NAME + 1 || !has(LISTENING) || !has(STREAM) {
        return None;
    }
    let name = fields.get(FIELDS_BEFORE_NAME)?.strip_prefix('@')?;
    let random = name.strip_prefix(prefix)?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (random.len() == RANDOM_DIGITS && random.bytes().all(is_digit)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inode_of_a_namespace_is_read_from_its_link() {
        assert_eq!(parse_namespace("pid:[4026531836]"), Some(4_026_531_836));
        for link in ["", "pid:[]", "pid:[x]", "net:[4026531836]", "pid:[4026531836", "pid:4026531836"] {
            assert_eq!(parse_namespace(link), None, "{link}");
        }
    }

    #[test]
    fn a_name_has_program_namespace_and_random_part() {
        assert_eq!(full_name(&prefix("ccm", 7), 0xab), "ccm.7.000000000000000000000000000000ab");
        let longest = full_name(&prefix("vsphere-cloud-controller-manager", u64::MAX), u128::MAX);
        assert!(longest.len() <= 107, "the kernel limits a name to 107 bytes: {}", longest.len());
    }

    #[test]
    fn only_listening_streams_with_prefix_and_random_part_are_listed() {
        const RANDOM: &str = "0123456789abcdef0123456789abcdef";
        let line = |flags: &str, kind: &str, name: &str| {
            format!("0000000041b2f2f5: 00000002 00000000 {flags} {kind} 01 35421 {name}")
        };
        let ours = format!("ccm.7.{RANDOM}");
        let good = line("00010000", "0001", &format!("@{ours}"));
        assert_eq!(listed_name(good.as_bytes(), "ccm.7."), Some(ours.clone()));
        assert_eq!(listed_name(good.as_bytes(), "ccm.8."), None, "another namespace");

        let others = [
            ("a connection", line("00000000", "0001", &format!("@{ours}"))),
            ("datagrams", line("00010000", "0002", &format!("@{ours}"))),
            ("a path", line("00010000", "0001", &ours)),
            ("no random part", line("00010000", "0001", "@ccm.7.")),
            ("a short random part", line("00010000", "0001", "@ccm.7.0123456789abcdef")),
            ("a long random part", line("00010000", "0001", &format!("@{ours}0"))),
            ("a NUL byte at the end", line("00010000", "0001", &format!("@{ours}@"))),
            ("other digits", line("00010000", "0001", &format!("@ccm.7.{}", RANDOM.to_uppercase()))),
            ("more after the name", format!("{good} more")),
            ("no name", line("00010000", "0001", "")),
            ("the header", "Num       RefCount Protocol Flags    Type St Inode Path".to_owned()),
            ("nothing", String::new()),
        ];
        for (case, line) in others {
            assert_eq!(listed_name(line.as_bytes(), "ccm.7."), None, "{case}");
        }
        assert_eq!(listed_name(b"\xff 1 2 00010000 0001 01 3 @ccm.7.", "ccm.7."), None, "no text");
    }
}
