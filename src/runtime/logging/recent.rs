//! Keeps the last lines of the log in memory, compressed, so that a command in the same container can collect them.
//! The container runtime keeps the log as well, but a program inside of the container cannot read it.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use parking_lot::Mutex;

/// Maximum number of kept bytes of text.
pub const MAX_TEXT: usize = 2 << 20;

/// Maximum number of bytes of the compressed text. Lines of a log have much in common, so that the text shrinks to a
/// tenth or less.
const MAX_COMPRESSED: usize = 256 << 10;

/// Size at which lines are compressed as one block, in bytes of text.
const BLOCK: usize = 16 << 10;

/// The last lines of the log. Clones share them.
#[derive(Clone, Default)]
pub struct RecentLog(Arc<Mutex<LogBlocks>>);

#[derive(Clone, Default)]
struct LogBlocks {
    /// The older lines, the oldest block first.
    blocks: VecDeque<LogBlock>,
    /// The newest lines.
    open: String,
    /// Text of all blocks, in bytes.
    text: usize,
    /// Compressed text of all blocks, in bytes.
    compressed: usize,
}

#[derive(Clone)]
struct LogBlock {
    compressed: Box<[u8]>,
    /// Size of the text, in bytes.
    text: usize,
}

impl RecentLog {
    /// Adds a line, including its line break. Drops the oldest lines if there are too many.
    pub(super) fn push(&self, line: &str) {
        let mut state = self.0.lock();
        state.open.push_str(line);
        if state.open.len() >= BLOCK {
            state.close_block();
        }
    }

    /// Returns the last lines, at most `limit` bytes. The text begins with a whole line.
    pub fn text(&self, limit: usize) -> String {
        let state = self.0.lock().clone();
        let mut text = String::with_capacity(state.text + state.open.len());
        for block in &state.blocks {
            // Writing to memory and reading what was written there does not fail.
            let _ = DeflateDecoder::new(&*block.compressed).read_to_string(&mut text);
        }
        text.push_str(&state.open);
        end_of(&text, limit).to_owned()
    }
}

impl LogBlocks {
    fn close_block(&mut self) {
        let text = std::mem::take(&mut self.open);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        // Writing to memory does not fail.
        let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
        let Ok(compressed) = compressed else { return };
        self.text += text.len();
        self.compressed += compressed.len();
        self.blocks.push_back(LogBlock { compressed: compressed.into(), text: text.len() });
        while self.text > MAX_TEXT || self.compressed > MAX_COMPRESSED {
            let Some(oldest) = self.blocks.pop_front() else { return };
            self.text -= oldest.text;
            self.compressed -= oldest.compressed.len();
        }
    }
}

/// Returns the end of the text, from the beginning of a line.
fn end_of(text: &str, limit: usize) -> &str {
    let Some(start) = text.len().checked_sub(limit).filter(|start| *start > 0) else { return text };
    // The line break before the first whole line.
    let line_break = text.as_bytes().iter().skip(start - 1).position(|byte| *byte == b'\n');
    line_break.and_then(|at| text.get(start + at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: usize) -> String {
        format!("I1124 03:12:40.{number:06}       1 node.rs:222] \"node updated\" node=\"worker-{}\"\n", number % 97)
    }

    #[test]
    fn the_last_lines_are_returned_in_their_order() {
        let log = RecentLog::default();
        assert_eq!(log.text(100), "");
        let all: String = (0..1_000).map(line).collect();
        (0..1_000).for_each(|number| log.push(&line(number)));
        assert!(!log.0.lock().blocks.is_empty() && !log.0.lock().open.is_empty());
        assert_eq!(log.text(all.len()), all);
        assert_eq!(log.text(line(999).len()), line(999));
        assert_eq!(log.text(line(999).len() * 2 - 1), line(999), "the text begins with a whole line");
    }

    #[test]
    fn text_and_memory_are_bounded() {
        let log = RecentLog::default();
        let count = 2 * MAX_TEXT / line(0).len();
        (0..count).for_each(|number| log.push(&line(number)));
        let state = log.0.lock().clone();
        assert!((MAX_TEXT - BLOCK..=MAX_TEXT).contains(&state.text), "{}", state.text);
        assert!(state.compressed <= MAX_COMPRESSED, "{}", state.compressed);
        assert!(log.text(usize::MAX).ends_with(&line(count - 1)));
        // Text without repetition does not shrink.
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let noise: String = std::iter::repeat_with(|| random.alphanumeric()).take(100).collect();
            log.push(&format!("{noise}\n"));
            assert!(log.0.lock().compressed <= MAX_COMPRESSED);
        }
        let state = log.0.lock().clone();
        let sums = state.blocks.iter().fold((0, 0), |sum, block| (sum.0 + block.text, sum.1 + block.compressed.len()));
        assert_eq!(sums, (state.text, state.compressed));
    }

    #[test]
    fn a_line_that_is_larger_than_a_block_is_kept() {
        let log = RecentLog::default();
        let long = format!("{}ü\n", "x".repeat(3 * BLOCK));
        log.push(&long);
        log.push("y\n");
        assert_eq!(log.text(MAX_TEXT), format!("{long}y\n"));
        assert_eq!(log.text(4), "y\n", "no character is cut");
    }
}
