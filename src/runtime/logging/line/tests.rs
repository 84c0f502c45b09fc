//! Tests of lines, which are read back as parsers of the klog formats read them.

use super::*;

fn said(message: &str, values: &[(&'static str, Value)]) -> EventFields {
    EventFields { message: message.to_owned(), values: values.to_vec() }
}

fn text_value(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn record(level: Level, fields: &EventFields) -> Record<'_> {
    let time = "2026-01-09T07:05:03.000042999Z".parse().unwrap();
    Record { time, level, location: ("src/controllers/node.rs", 42), task: None, event: fields }
}

type Pairs = Vec<(String, String)>;

/// Parses a text line into severity, message, and keys with values. Returns `None` if the line is not in klog format.
fn parse(line: &str) -> Option<(char, String, Pairs)> {
    let line = line.strip_suffix('\n').filter(|line| !line.contains('\n'))?;
    // ^([IWEF])(\d{4}) (\d\d:\d\d:\d\d\.\d{6}) +(\d+) ([^:]+):(\d+)\] (.*)$
    let (header, rest) = line.split_once("] ")?;
    let severity = header.chars().next().filter(|char| "IWEF".contains(*char))?;
    let mut words = header.get(1..)?.split(' ').filter(|word| !word.is_empty());
    let day = words.next().filter(|day| day.len() == 4 && day.bytes().all(|byte| byte.is_ascii_digit()));
    let time = words.next().filter(|time| time.len() == 15);
    let process = words.next().and_then(|process| process.parse::<u32>().ok());
    let metadata = words.next().and_then(|place| place.split_once(':')?.1.parse::<u32>().ok());
    let is_header =
        day.is_some() && time.is_some() && process.is_some() && metadata.is_some() && words.next().is_none();
    let (message, mut rest) = unquote(rest).filter(|_| is_header)?;
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let (key, value) = rest.strip_prefix(' ')?.split_once('=')?;
        let (value, after) = match value.starts_with('"') {
            true => unquote(value)?,
            false => {
                let (value, after) = value.split_at(value.find(' ').unwrap_or(value.len()));
                (value.to_owned(), after)
            }
        };
        pairs.push((key.to_owned(), value));
        rest = after;
    }
    Some((severity, message, pairs))
}

/// Unquotes the quoted start of a text, like Go's `strconv.Unquote`. Returns the value and the remaining text.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut chars = text.strip_prefix('"')?.chars();
    let mut value = String::new();
    let hexadecimal = |chars: &mut std::str::Chars<'_>, digits: usize| {
        let digits: String = chars.by_ref().take(digits).collect();
        char::from_u32(u32::from_str_radix(&digits, 16).ok()?)
    };
    while let Some(char) = chars.next() {
        match char {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(match chars.next()? {
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\x0b',
                'x' => hexadecimal(&mut chars, 2)?,
                'u' => hexadecimal(&mut chars, 4)?,
                'U' => hexadecimal(&mut chars, 8)?,
                same @ ('"' | '\\') => same,
                _ => return None,
            }),
            control if control.is_control() => return None,
            char => value.push(char),
        }
    }
    None
}

#[test]
fn text_is_as_klog_writes_it() {
    let values = [
        ("node", text_value("a")),
        ("count", Value::Bare("-3".to_owned())),
        ("error", text_value("open x: denied")),
        ("pending", Value::Bare("true".to_owned())),
        ("share", Value::float(0.5)),
        ("odd", Value::float(f64::NAN)),
        ("total", Value::Bare("18446744073709551615".to_owned())),
    ];
    let cases = [
        (Level::INFO, said("hello", &[]), "I0109 07:05:03.000042      77 node.rs:42] \"hello\"\n"),
        (
            Level::ERROR,
            said("say \"no\"", &values),
            "E0109 07:05:03.000042      77 node.rs:42] \"say \\\"no\\\"\" err=\"open x: denied\" node=\"a\" count=-3 \
             pending=true share=0.5 odd=\"NaN\" total=18446744073709551615\n",
        ),
        (
            Level::WARN,
            said("ü\t\u{202e}\u{1f4a9}", &[]),
            "W0109 07:05:03.000042      77 node.rs:42] \"ü\\t\\u202e💩\"\n",
        ),
        (Level::DEBUG, said("d", &[]), "I0109 07:05:03.000042      77 node.rs:42] \"d\"\n"),
        (Level::TRACE, said("t", &[]), "I0109 07:05:03.000042      77 node.rs:42] \"t\"\n"),
    ];
    for (level, fields, expected) in cases {
        assert_eq!(text(&record(level, &fields), 77), expected);
    }
    let said = said("m", &[("node", text_value("a"))]);
    let reported = text(&Record { task: Some("nodes"), ..record(Level::INFO, &said) }, 12_345_678);
    assert_eq!(reported, "I0109 07:05:03.000042 12345678 node.rs:42] \"m\" logger=\"nodes\" node=\"a\"\n");
}

#[test]
fn json_has_the_keys_of_klog() {
    let values = [
        ("error", text_value("denied")),
        ("node", text_value("a\nb")),
        ("count", Value::Bare("-3".to_owned())),
        ("msg", text_value("mine")),
        ("odd", Value::float(f64::INFINITY)),
    ];
    let cases = [
        (
            Level::INFO,
            "{\"ts\":1767942303000.043,\"caller\":\"controllers/node.rs:42\",\"msg\":\"m\",\"v\":0,\
             \"node\":\"a\\nb\",\"count\":-3,\"msg_\":\"mine\",\"odd\":\"inf\",\"err\":\"denied\"}\n",
        ),
        (
            Level::ERROR,
            "{\"ts\":1767942303000.043,\"caller\":\"controllers/node.rs:42\",\"msg\":\"m\",\
             \"node\":\"a\\nb\",\"count\":-3,\"msg_\":\"mine\",\"odd\":\"inf\",\"err\":\"denied\"}\n",
        ),
    ];
    let fields = said("m", &values);
    for (level, expected) in cases {
        assert_eq!(json(&record(level, &fields)), expected);
    }
    for (level, verbosity) in [(Level::WARN, 0), (Level::DEBUG, 4), (Level::TRACE, 6)] {
        let line: serde_json::Value = serde_json::from_str(&json(&record(level, &fields))).unwrap();
        assert_eq!(line["v"], verbosity, "{level}");
    }
    let reported = json(&Record { task: Some("nodes"), location: ("main.rs", 1), ..record(Level::INFO, &fields) });
    assert!(reported.contains(",\"logger\":\"nodes\",\"caller\":\"main.rs:1\",\"msg\":"), "{reported}");
}

proptest::proptest! {
    /// A guest, a vCenter or a user can put any text into a name.
    #[test]
    fn nothing_that_is_said_breaks_a_line_or_forges_one(message in "(?s).{0,40}", first in "(?s).{0,40}", second: f64) {
        let values = [("first", text_value(&first)), ("second", Value::float(second)), ("third", Value::Bare("false".to_owned()))];
        let fields = said(&message, &values);
        let line = text(&record(Level::WARN, &fields), 1);
        let (severity, reported, pairs) = parse(&line).ok_or_else(|| proptest::test_runner::TestCaseError::fail(line.clone()))?;
        proptest::prop_assert_eq!((severity, reported), ('W', message.clone()));
        let keys: Vec<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
        proptest::prop_assert_eq!(keys, ["first", "second", "third"]);
        proptest::prop_assert_eq!(&pairs[0].1, &first);

        let line = json(&record(Level::WARN, &fields));
        proptest::prop_assert_eq!(line.matches('\n').count(), 1);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        proptest::prop_assert_eq!(&object["msg"], &message);
        proptest::prop_assert_eq!(&object["first"], &first);
    }
}
