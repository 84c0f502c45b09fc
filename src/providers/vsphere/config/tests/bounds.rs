//! Tests with arbitrary files: no panic, limited time, limited messages, and no value of the file in a message.

use std::time::{Duration, Instant};

use super::*;

/// Time limit for all files. A debug build needs much less; quadratic work would need much more.
const LIMIT: Duration = Duration::from_secs(20);

const SIZE: usize = 64 << 10;

/// Texts that are repeated until the file has its size.
const UNITS: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    "[{",
    "- ",
    "-\n",
    "? ",
    ": ",
    "a: ",
    "a:\n ",
    "&a ",
    "*a ",
    "&a [",
    "!",
    "!!str ",
    "|\n",
    ">\n ",
    "\"",
    "'",
    "\\",
    "%",
    "---\n",
    "...\n",
    "#",
    ";",
    "=",
    "=\n",
    "\n",
    "\r\n",
    "\t",
    " ",
    "\u{feff}",
    "\u{e9}",
    "a",
    "a\n",
    "a=b\n",
    "a = \"\\\\\"\n",
    "a = \\\n",
    "a: b\n",
    "a: &a b\n",
    "<<: ",
    "<<: *a\n",
    "[Global]\n",
    "[VirtualCenter \"a\"]\n",
    "[x]\n",
    "global: ~\n",
    ", ",
    "0",
    "hunter2\n",
    "hunter2=\n",
    "hunter2: x\n",
    "user = hunter2\n",
];

fn told(text: &str) -> Vec<String> {
    match parse(text, "f") {
        Ok(parsed) => parsed.warnings.iter().map(ToString::to_string).collect(),
        Err(errors) => errors.errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn repeated_text_is_read_in_bounded_time_and_told_in_bounded_words() {
    let starts = [
        "",
        "[Global]\n",
        "[Global]\npassword = ",
        "global:\n  password: ",
        "global: {",
        "vcenter: ",
        "x: &a [b]\ny: [",
    ];
    let began = Instant::now();
    for start in starts {
        for unit in UNITS {
            // Only one start gets the full size. With the full size for all starts, a debug build would need 15 s.
            let size = if start.is_empty() { SIZE } else { SIZE / 8 };
            let text = format!("{start}{}", unit.repeat(size / unit.len()));
            let reported = told(&text);
            assert!(reported.len() <= 101, "{start:?} {unit:?}: {}", reported.len());
            let words: usize = reported.iter().map(String::len).sum();
            assert!(words < 32_000, "{start:?} {unit:?}: {words}");
            assert!(!reported.concat().contains("hunter2"), "{start:?} {unit:?}");
        }
    }
    println!("{} texts of up to {SIZE} bytes in {:?}", starts.len() * UNITS.len(), began.elapsed());
    assert!(began.elapsed() < LIMIT * 2, "{:?}", began.elapsed());
}

#[test]
fn many_different_names_are_read_in_bounded_time() {
    let repeated = |line: &dyn Fn(usize) -> String| (0..20_000).map(line).collect::<String>();
    let rows = [
        (
            "vCenters in INI",
            format!("[Global]\nuser=u\npassword=p\n{}", repeated(&|index| format!("[VirtualCenter \"{index}\"]\n"))),
            "expected at most 1000 vCenters",
        ),
        (
            "vCenters in YAML",
            format!(
                "global: {{user: u, password: p}}\nvcenter:\n{}",
                (0..1200).map(|index| format!("  a{index}: {{server: s{index}}}\n")).collect::<String>()
            ),
            "expected at most 1000 vCenters",
        ),
        (
            "classes in INI",
            repeated(&|index| format!("[LoadBalancerClass \"{index}\"]\n")),
            "expected at most 1000 classes",
        ),
        (
            "classes in YAML",
            format!(
                "loadBalancerClass:\n{}",
                (0..1200).map(|index| format!("  a{index}: {{ipPoolId: s{index}}}\n")).collect::<String>()
            ),
            "expected at most 1000 classes",
        ),
        (
            "tags in INI",
            format!("[LoadBalancer]\ntags = \"[{}]\"\n", "1,".repeat(100_000)),
            "expected a JSON object of texts of at most 64 KiB",
        ),
        (
            "values in YAML",
            format!("x:\n{}", repeated(&|index| format!("  a{index}: {{b: c}}\n"))),
            "expected at most 20000 values",
        ),
        (
            "keys in INI",
            format!("[Global]\n{}", repeated(&|index| format!("k{index} = v\n"))),
            "expected at most 20000 sections and variables",
        ),
        ("sections in INI", repeated(&|index| format!("[s{index}]\n")), "no vCenter is defined"),
        (
            "items in INI",
            format!("[Global]\nserver=s\nuser=u\npassword=p\ndatacenters=\"{}\"\n", "d,".repeat(20_001)),
            "expected at most 20000 items in all lists together",
        ),
        (
            "items in YAML",
            format!("global: {{server: s, user: u, password: p, caFile: \"{}\"}}\n", "/a:".repeat(20_001)),
            "expected at most 20000 items in all lists together",
        ),
        (
            "what vCenters inherit",
            format!(
                "global: {{user: u, password: \"{}\"}}\nvcenter:\n{}",
                "p".repeat(200_000),
                (0..10).map(|index| format!("  a{index}: {{server: s{index}}}\n")).collect::<String>()
            ),
            "expected at most 1048576 bytes with what each vCenter inherits from Global",
        ),
        ("anchors", repeated(&|index| format!("a{index}: &a{index} {{b: c}}\n")), "expected at most 20000 values"),
    ];
    for (id, text, part) in rows {
        let began = Instant::now();
        let reported = told(&text);
        assert!(reported.iter().any(|line| line.contains(part)), "{id}: {:?}", &reported[..reported.len().min(3)]);
        assert!(reported.len() <= 101 && began.elapsed() < LIMIT, "{id}: {} in {:?}", reported.len(), began.elapsed());
    }
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_read() {
    let line = "# nothing\n";
    let fits = line.repeat((1 << 20) / line.len());
    assert_eq!(
        told(&fits),
        ["f: no vCenter is defined: expected server in the section Global, or an entry for a vCenter"]
    );
    assert_eq!(told(&format!("{fits}{line}")), ["f: expected at most 1048576 bytes"]);
}

#[test]
fn bombs_are_refused_with_a_sentence() {
    let mut bomb = "global: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let deep = format!("global: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    for text in [bomb, deep] {
        let reported = told(&text);
        assert!(
            reported[0]
                .contains("expected at most 20000 values and 1048576 bytes of text, with aliases, and 64 levels"),
            "{reported:?}"
        );
    }
}

#[test]
fn messages_have_an_end() {
    let reported = told(&format!("[Global]\n{}", "= x\n".repeat(5000)));
    assert_eq!((reported.len(), reported[100].as_str()), (101, "f: and 4900 more mistakes"));
    // A mistake in the file rejects the file even if it is only counted. Mistakes of a part turn off only that part.
    let part = format!("[NSXT]\n{}", "insecure-flag = x\n".repeat(5000));
    let with = |rest: &str| parse(&format!("{part}[VirtualCenter \"a\"]\nuser = u\n{rest}"), "f");
    assert_eq!(with("").unwrap_err().errors.len(), 101);
    let parsed = with("password = p\n").unwrap();
    assert!(parsed.config.nsx.is_refused() && parsed.rejected.len() == 101 && parsed.config.vcenters.len() == 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The bytes are converted to text, because `app` rejects files that are not UTF-8.
    #[test]
    fn no_bytes_break_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..SIZE)) {
        let _ = parse(&String::from_utf8_lossy(&bytes), "f");
    }

    #[test]
    fn no_likely_bytes_break_the_parser(
        start in proptest::sample::select(&["", "[Global]\n", "global:\n  "][..]),
        units in proptest::collection::vec(proptest::sample::select(UNITS), 0..4000),
    ) {
        let reported = told(&format!("{start}{}", units.concat()));
        prop_assert!(!reported.concat().contains("hunter2"), "{:?}", reported);
    }
}
