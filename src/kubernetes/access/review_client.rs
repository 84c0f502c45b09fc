//! Sends reviews to the API server, with concurrency limit, rate limit, time limit, retries and cache, and reports
//! failures.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::metrics::ReviewCounts;
use crate::base::backoff::Backoff;
use crate::base::error_chain::{chain, sources};
use crate::kubernetes::call::{CallError, limited};
use crate::kubernetes::client::{Bucket, Rate};

/// Time limit of one review, including all attempts and the wait for a turn.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// Concurrent reviews of one kind; further ones wait.
const MAX_CONCURRENT: usize = 8;

/// Rate limit of the reviews of one kind; a tenth of the Go program's. A client of the port may send a new token with
/// each request, and the API server puts reviews in one flow with the writes of the controllers. Answers are cached.
const RATE: Rate = Rate { qps: 20.0, burst: 40 };

/// Attempts per review, and the pauses in between; as the Go program's `DefaultAuthWebhookRetryBackoff`.
const ATTEMPTS: u32 = 5;
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), LIMIT).growing_by(1.5).lengthened_by(0.2);

/// Maximum number of cached answers of each kind.
pub(super) const MAX_CACHED: usize = 1024;

/// Sends one kind of review. Failures are not cached.
pub(super) struct ReviewClient<K, A> {
    reviews: Api<K>,
    kind: Kind,
    requests: ReviewCounts,
    answers: ReviewCache<A>,
    concurrency: Semaphore,
    rate: Bucket,
    last_failure: Mutex<ReviewFailure>,
}

/// The kind of a review, for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// The API kind.
    pub(super) name: &'static str,
    /// The effect at the secure port while the API server does not answer reviews.
    pub(super) effect: &'static str,
}

/// Outcome of the last review, so that a failure is reported when it begins and not at every scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReviewFailure {
    None,
    Forbidden,
    Other,
}

impl<K, A> ReviewClient<K, A>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
    A: Clone,
{
    /// Sends reviews by `client`, which must not be guarded by leadership and must not retry.
    pub(super) fn new(client: Client, kind: Kind, requests: ReviewCounts) -> Self {
        Self {
            reviews: Api::all(client),
            kind,
            requests,
            answers: ReviewCache::new(MAX_CACHED),
            concurrency: Semaphore::new(MAX_CONCURRENT),
            rate: Bucket::new(RATE),
            last_failure: Mutex::new(ReviewFailure::None),
        }
    }

    /// The answer about `subject`, cached or new: `read` extracts it from the answered `review`, with its cache
    /// duration, or `None` if it must not be cached.
    ///
    /// # Errors
    /// The API server refused the review, or did not answer within ten seconds.
    pub(super) async fn answer(
        &self,
        subject: &[u8],
        review: &K,
        read: impl FnOnce(K) -> (A, Option<Duration>),
    ) -> Result<A, CallError> {
        let asked = question(subject);
        if let Some(answer) = self.answers.find(&asked) {
            return Ok(answer);
        }
        let asking = async {
            // Fails only if the semaphore is closed, which never happens.
            let _turn = self.concurrency.acquire().await.ok();
            // The same review may have been answered while this one waited.
            if let Some(answer) = self.answers.find(&asked) {
                return Ok(answer);
            }
            let (answer, cache_duration) = read(self.ask(review).await?);
            if let Some(believed) = cache_duration {
                self.answers.remember(asked, answer.clone(), believed);
            }
            Ok(answer)
        };
        let outcome = limited(&format!("create a {}", self.kind.name), LIMIT, asking).await;
        self.note(outcome.as_ref().err());
        outcome
    }

    /// Sends the review, and repeats it after transient errors.
    async fn ask(&self, review: &K) -> kube::Result<K> {
        for failures in 1..ATTEMPTS {
            match self.attempt(review).await {
                Err(error) if is_transient(&error) => {
                    tokio::time::sleep(BACKOFF.pause(failures, fastrand::f64())).await;
                }
                outcome => return outcome,
            }
        }
        self.attempt(review).await
    }

    async fn attempt(&self, review: &K) -> kube::Result<K> {
        self.rate.take().await;
        let begin = Instant::now();
        let outcome = self.reviews.create(&PostParams::default(), review).await;
        let code = match &outcome {
            // A create call is answered with this status; the library does not expose it.
            Ok(_) => "201".to_owned(),
            Err(kube::Error::Api(status)) => status.code.to_string(),
            Err(_) => "<error>".to_owned(),
        };
        self.requests.count(&code, begin.elapsed());
        outcome
    }

    fn note(&self, error: Option<&CallError>) {
        let Kind { name, effect } = self.kind;
        let now = match error {
            None => ReviewFailure::None,
            Some(error) if error.is_forbidden() => ReviewFailure::Forbidden,
            Some(_) => ReviewFailure::Other,
        };
        let known = std::mem::replace(&mut *self.last_failure.lock(), now);
        match error {
            None if known == ReviewFailure::None => {}
            None => tracing::info!("the API server answers {name}s again"),
            Some(error) if known == now => tracing::debug!("{}", chain(error)),
            Some(error) if now == ReviewFailure::Forbidden => tracing::warn!(
                "this process may not create {name}s, so {effect}; to allow it, bind its user to the ClusterRole \
                 system:auth-delegator. Told once: {}",
                chain(error)
            ),
            Some(error) => tracing::warn!("the API server does not answer {name}s, so {effect}: {}", chain(error)),
        }
    }
}

/// Whether a retry may help, as `DefaultShouldRetry` in `pkg/util/webhook/webhook.go`.
fn is_transient(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        let asks_for_delay = status.details.as_ref().is_some_and(|details| details.retry_after_seconds > 0);
        return matches!(status.code, 429 | 500 | 504) || asks_for_delay;
    }
    sources(error).any(|source| {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let kind = source.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let is_cut = source.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
        is_cut || matches!(kind, Some(BrokenPipe | ConnectionReset | UnexpectedEof))
    })
}

/// The digest of a review's subject, which may be a token.
type SubjectDigest = [u8; 32];

fn question(text: &[u8]) -> SubjectDigest {
    Sha256::digest(text).into()
}

/// A bounded cache of answers that expire. Subjects are stored as digests only.
struct ReviewCache<V> {
    capacity: usize,
    answers: Mutex<HashMap<SubjectDigest, (V, Instant)>>,
}

impl<V: Clone> ReviewCache<V> {
    fn new(most: usize) -> Self {
        Self { capacity: most, answers: Mutex::default() }
    }

    /// The answer, unless it has expired.
    fn find(&self, question: &SubjectDigest) -> Option<V> {
        let answers = self.answers.lock();
        answers.get(question).filter(|(_, until)| *until > Instant::now()).map(|(answer, _)| answer.clone())
    }

    /// Caches an answer for `believed`. If the cache is full, the entry that expires first is evicted.
    fn remember(&self, question: SubjectDigest, answer: V, cache_duration: Duration) {
        let now = Instant::now();
        // An overflowing expiry is not cached: the next caller asks again.
        let Some(until) = now.checked_add(cache_duration).filter(|until| *until > now) else { return };
        let mut answers = self.answers.lock();
        if answers.len() >= self.capacity {
            answers.retain(|_, (_, until)| *until > now);
        }
        if answers.len() >= self.capacity
            && let Some(first) = answers.iter().min_by_key(|(_, (_, until))| *until).map(|(question, _)| *question)
        {
            answers.remove(&first);
        }
        answers.insert(question, (answer, until));
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Metrics;
    use super::super::scripted_server;
    use super::*;
    use k8s_openapi::api::authentication::v1::TokenReview;

    #[tokio::test(start_paused = true)]
    async fn questions_follow_each_other_at_a_rate() {
        let (client, count) = scripted_server::server(|_, _| Ok(serde_json::json!({"authenticated": false})));
        let kind = Kind { name: "TokenReview", effect: "nobody is known" };
        let questions = ReviewClient::<TokenReview, ()>::new(client, kind, Metrics::default().authentication.clone());
        let start = Instant::now();
        for _ in 0..50 {
            questions.ask(&TokenReview::default()).await.unwrap();
        }
        let (asked, taken) = (count.load(std::sync::atomic::Ordering::SeqCst), start.elapsed().as_millis());
        // 40 at once, the others at 20 per second.
        assert!(asked == 50 && (490..700).contains(&taken), "{asked} questions in {taken} ms");
    }
    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn answers_are_believed_for_their_time() {
        let remembered = ReviewCache::new(10);
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
        let remembered = ReviewCache::new(3);
        for number in 0..10_u8 {
            remembered.remember(question(&[number]), number, SECOND * (1 + u32::from(number)));
            assert!(remembered.answers.lock().len() <= 3);
        }
        let known: Vec<_> = (0..10_u8).filter_map(|number| remembered.find(&question(&[number]))).collect();
        assert_eq!(known, [7, 8, 9]);
    }
}
