//! The output of the demo: a table that is redrawn in place on a terminal, plain lines otherwise.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::table::Table;

/// Lines for the steps above the table and the notes below it.
const RESERVED_LINES: usize = 18;

/// A terminal, or a stream of lines.
pub struct Screen {
    interactive: bool,
    /// Whether notes are plain lines, even on a terminal.
    is_plain: bool,
    notes: Vec<String>,
    drawn: Vec<String>,
    size: (usize, usize),
    measured: Option<Instant>,
    header_shown: bool,
}

impl Screen {
    /// Makes a screen. On a terminal (`interactive`) it hides the cursor until [`Screen::end`].
    pub fn new(interactive: bool) -> Self {
        if interactive {
            print!("\x1b[?25l");
        }
        Self {
            interactive,
            is_plain: false,
            notes: Vec::new(),
            drawn: Vec::new(),
            size: (40, 160),
            measured: None,
            header_shown: false,
        }
    }

    fn is_redrawn(&self) -> bool {
        self.interactive && !self.is_plain
    }

    /// Stops redrawing the table, and writes notes below it as lines, because they may not fit on the terminal.
    pub fn pause_table(&mut self) {
        self.is_plain = true;
    }

    /// Draws the table again from now on, below everything that was written.
    pub fn resume_table(&mut self) {
        self.is_plain = false;
        (self.notes, self.drawn) = (Vec::new(), Vec::new());
    }

    /// Draws the table and the notes over the last frame.
    pub fn draw(&mut self, table: &Table) {
        if !self.is_redrawn() {
            return;
        }
        let (height, width) = self.measure();
        let mut lines = table.lines(width, height.saturating_sub(RESERVED_LINES).max(4));
        lines.extend(self.notes.iter().cloned());
        if lines == self.drawn {
            return;
        }
        let mut frame = String::new();
        // A line that is longer than the terminal's width takes several rows.
        let rows: usize = self.drawn.iter().map(|line| line.chars().count().div_ceil(width).max(1)).sum();
        if rows > 0 {
            frame.push_str(&format!("\x1b[{rows}A"));
        }
        for line in &lines {
            frame.push_str(&format!("\r{line}\x1b[K\n"));
        }
        // Clears the rest of a longer frame.
        frame.push_str("\x1b[J");
        print!("{frame}");
        // An error of a closed terminal is ignored.
        drop(std::io::stdout().flush());
        self.drawn = lines;
    }

    /// Returns the terminal's rows and columns. Measures them once a second, because users resize windows.
    fn measure(&mut self) -> (usize, usize) {
        if self.measured.is_none_or(|measured| measured.elapsed() > Duration::from_secs(1)) {
            self.measured = Some(Instant::now());
            self.size = terminal_size();
        }
        self.size
    }

    /// Prints the line of a node whose initialization has ended, if the table is not redrawn.
    pub fn row(&mut self, table: &Table, node: &str) {
        if self.is_redrawn() {
            return;
        }
        if !self.header_shown {
            self.header_shown = true;
            println!("{}", table.header());
        }
        println!("{}", table.line(node));
    }

    /// Prints a line below the table.
    pub fn note(&mut self, table: &Table, line: &str) {
        if self.is_redrawn() {
            self.notes.push(line.to_owned());
            self.draw(table);
        } else {
            println!("{line}");
        }
    }

    /// Shows the cursor again.
    pub fn end(&mut self) {
        if self.interactive {
            println!("\x1b[?25h");
        }
    }
}

/// Returns rows and columns from `stty`, or a common size if it fails.
fn terminal_size() -> (usize, usize) {
    let answer = Command::new("stty").arg("size").stdin(Stdio::inherit()).stderr(Stdio::null()).output();
    let text = answer.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(rows), Some(columns)) if rows > 0 && columns > 0 => (rows, columns),
        _ => (40, 160),
    }
}
