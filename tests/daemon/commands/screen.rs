//! Screens of commands without what differs between two runs.

/// Maximum width of a line, in columns.
const WIDTH: usize = 100;

/// Replaces the times before punctuation, which `normalised` leaves.
pub fn without_times(screen: &str) -> String {
    let shown = |word: &str| {
        let time = word.trim_end_matches([',', ';', ' ', '\n']);
        let is_time = time.len() == 20 && time.ends_with('Z') && time.matches(':').count() == 2;
        if is_time { word.replace(time, "2026-11-24T03:12:40Z") } else { word.to_owned() }
    };
    screen.split_inclusive([' ', '\n']).map(shown).collect()
}

/// Breaks the lines again, because the names of the test have other lengths than those of the page.
pub fn rewrapped(screen: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in screen.lines() {
        // A continued line is indented and has no columns.
        let is_continued = line.starts_with("  ") && !line.trim_start().contains("  ");
        match lines.last_mut().filter(|_| is_continued) {
            Some(before) => before.push_str(&format!(" {}", line.trim_start())),
            None => lines.push(line.to_owned()),
        }
    }
    lines.iter().flat_map(|line| broken(line)).collect::<Vec<_>>().join("\n")
}

/// Columns of the labels of facts, and of their indentation.
const FACT: usize = 20;

fn broken(line: &str) -> Vec<String> {
    let indent = if line.starts_with("  ") { FACT } else { 2 };
    let mut lines = vec![String::new()];
    for (number, word) in line.split(' ').enumerate() {
        let last = lines.last_mut().unwrap();
        match last.chars().count() + 1 + word.chars().count() <= WIDTH {
            _ if number == 0 => last.push_str(word),
            true => last.push_str(&format!(" {word}")),
            false => lines.push(format!("{}{word}", " ".repeat(indent))),
        }
    }
    lines
}

#[test]
fn a_fact_continues_below_its_beginning_as_on_the_terminal() {
    let long = "word ".repeat(30);
    let shown = rewrapped(&format!("Node a\n  label             {}\n", long.trim_end()));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    assert!(lines[1].starts_with("  label             word") && lines[1].len() <= WIDTH, "{shown}");
    assert!(lines[2].starts_with(&format!("{}word", " ".repeat(FACT))), "{shown}");
    assert_eq!(rewrapped(&shown), shown);
}
