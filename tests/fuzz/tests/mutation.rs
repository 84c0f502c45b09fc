//! Generates inputs: files of a corpus that are cut, joined, repeated and overwritten, and random bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Upper limit of an input, in bytes. Longer inputs find nothing more and are slow in a debug build.
const LONGEST: usize = 8 << 10;

/// Texts that break parsers of many kinds.
const ODD: [&str; 24] = [
    "",
    "\0",
    "\n",
    "\r\n",
    "\u{feff}",
    "\u{2028}",
    "é",
    "\\",
    "\"",
    "'",
    "%",
    "%2f",
    "&#0;",
    "&lt;",
    "]]>",
    "<!--",
    "-1",
    "99999999999999999999",
    "1e999",
    "null",
    "[",
    "{",
    "s3cr3t-0f-a-test",
    "=====",
];

/// Returns the words of some files, and the texts that break parsers.
pub fn words(files: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut words: Vec<Vec<u8>> = ODD.iter().map(|word| word.as_bytes().to_vec()).collect();
    for file in files {
        let pieces = file.chunk_by(|one, other| is_word(one) == is_word(other));
        words.extend(pieces.filter(|piece| piece.len() < 64).map(<[u8]>::to_vec));
    }
    words.sort();
    words.dedup();
    words
}

/// Generates sequences of words and bytes.
pub fn noise(words: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![2 => select(words), 1 => vec(any::<u8>(), 0..16)];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

#[derive(Clone, Debug)]
enum Edit {
    Cut(Index),
    Splice(Index, Vec<u8>, Index),
    Drop(Index, Index),
    Repeat(Index, Index, usize),
    Insert(Index, Vec<u8>),
    Replace(Index, Vec<u8>),
    Flip(Index, u8),
}

/// Generates files with several random edits.
pub fn mutated(files: Vec<Vec<u8>>, words: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let place = any::<Index>;
    let file = select(files);
    let edit = prop_oneof![
        1 => place().prop_map(Edit::Cut),
        1 => (place(), file.clone(), place()).prop_map(|(at, other, from)| Edit::Splice(at, other, from)),
        1 => (place(), place()).prop_map(|(one, two)| Edit::Drop(one, two)),
        1 => (place(), place(), 1..4_usize).prop_map(|(one, two, times)| Edit::Repeat(one, two, times)),
        3 => (place(), select(words.clone())).prop_map(|(at, word)| Edit::Insert(at, word)),
        3 => (place(), select(words)).prop_map(|(at, word)| Edit::Replace(at, word)),
        2 => (place(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, 1 << bit)),
    ];
    (file, vec(edit, 1..8)).prop_map(|(mut bytes, edits)| {
        for edit in edits {
            apply(&mut bytes, edit);
            bytes.truncate(LONGEST);
        }
        bytes
    })
}

fn apply(bytes: &mut Vec<u8>, edit: Edit) {
    let ends = bytes.len() + 1;
    let between = |one: Index, two: Index| {
        let (one, two) = (one.index(ends), two.index(ends));
        one.min(two)..one.max(two)
    };
    match edit {
        Edit::Cut(at) => bytes.truncate(at.index(ends)),
        Edit::Splice(at, other, from) => {
            bytes.truncate(at.index(ends));
            bytes.extend_from_slice(&other[from.index(other.len() + 1)..]);
        }
        Edit::Drop(one, two) => drop(bytes.drain(between(one, two))),
        Edit::Repeat(one, two, times) => {
            let range = between(one, two);
            let part = bytes[range.clone()].repeat(times);
            bytes.splice(range.end..range.end, part);
        }
        Edit::Insert(at, word) => {
            let at = at.index(ends);
            bytes.splice(at..at, word);
        }
        // Replaces the word at this place, so that the text after it stays where it belongs.
        Edit::Replace(at, word) => {
            let from = at.index(ends);
            let length = bytes[from..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            bytes.splice(from..from + length, word);
        }
        Edit::Flip(at, bit) => {
            if let Some(byte) = at.index(ends).checked_sub(1).and_then(|at| bytes.get_mut(at)) {
                *byte ^= bit;
            }
        }
    }
}
