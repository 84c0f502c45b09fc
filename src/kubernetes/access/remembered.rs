//! Answers of the API server that are believed for a while. Bounded, and what was asked is kept as a digest only.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// Stands for a question, which may be a token.
pub(super) type Question = [u8; 32];

/// The digest of a question.
pub(super) fn question(text: &[u8]) -> Question {
    Sha256::digest(text).into()
}

/// At most so many answers.
pub(super) struct Remembered<V> {
    most: usize,
    answers: Mutex<HashMap<Question, (V, Instant)>>,
}

impl<V: Clone> Remembered<V> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, answers: Mutex::default() }
    }

    /// The answer, as long as it is believed.
    pub(super) fn find(&self, question: &Question) -> Option<V> {
        let answers = self.answers.lock();
        answers.get(question).filter(|(_, until)| *until > Instant::now()).map(|(answer, _)| answer.clone())
    }

    /// Believes an answer for so long. Where there is no room, the one that would be forgotten first goes.
    pub(super) fn remember(&self, question: Question, answer: V, believed: Duration) {
        let now = Instant::now();
        // A time so far ahead that the clock does not reach it is one that is never believed: rather asked again.
        let Some(until) = now.checked_add(believed).filter(|until| *until > now) else { return };
        let mut answers = self.answers.lock();
        if answers.len() >= self.most {
            answers.retain(|_, (_, until)| *until > now);
        }
        if answers.len() >= self.most
            && let Some(first) = answers.iter().min_by_key(|(_, (_, until))| *until).map(|(question, _)| *question)
        {
            answers.remove(&first);
        }
        answers.insert(question, (answer, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn answers_are_believed_for_their_time() {
        let remembered = Remembered::new(10);
        remembered.remember(question(b"a"), 1, SECOND);
        remembered.remember(question(b"b"), 2, 2 * SECOND);
        remembered.remember(question(b"never"), 3, Duration::ZERO);
        let known = || ["a", "b", "never"].map(|text| remembered.find(&question(text.as_bytes())));
        assert_eq!(known(), [Some(1), Some(2), None]);
        tokio::time::advance(SECOND).await;
        assert_eq!(known(), [None, Some(2), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_never_more_than_the_bound_and_the_oldest_go_first() {
        let remembered = Remembered::new(3);
        for number in 0..10_u8 {
            remembered.remember(question(&[number]), number, SECOND * (1 + u32::from(number)));
            assert!(remembered.answers.lock().len() <= 3);
        }
        let known: Vec<_> = (0..10_u8).filter_map(|number| remembered.find(&question(&[number]))).collect();
        assert_eq!(known, [7, 8, 9]);
    }
}
