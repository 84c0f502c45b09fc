//! Sends reviews to the API server, caches the answers and logs failures. Limits concurrency, rate and time.

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

/// Time limit of one review. Includes retries and the waits for the concurrency limit and the rate limit.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of concurrent reviews of one kind. Further reviews wait.
const MAX_CONCURRENT: usize = 8;

/// Rate limit of the reviews of one kind: a tenth of the limit in the Go program. A client of the secure port may send
/// a new token with each request. Reviews must not delay the writes of the controllers, which share one flow of API
/// Priority and Fairness with the reviews.
const RATE: Rate = Rate { qps: 20.0, burst: 40 };

/// Attempts per review, as in the Go program's `DefaultAuthWebhookRetryBackoff`.
const ATTEMPTS: u32 = 5;
/// Pauses between the attempts, as in the Go program's `DefaultAuthWebhookRetryBackoff`.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), LIMIT).growing_by(1.5).lengthened_by(0.2);

/// Maximum number of cached answers per kind of review.
pub(super) const MAX_CACHED: usize = 1024;

/// A client for one kind of review. It caches answers, but not failures.
pub(super) struct ReviewClient<K, A> {
    reviews: Api<K>,
    kind: Kind,
    requests: ReviewCounts,
    answers: ReviewCache<A>,
    concurrency: Semaphore,
    rate: Bucket,
    last_failure: Mutex<ReviewFailure>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Text for the log: the effect at the secure port while the API server does not answer reviews.
    pub(super) effect: &'static str,
}

/// Outcome of the last review. With it, a failure is logged once instead of for each request.
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
    /// Creates a review client. `client` must neither check leadership, because standbys also send reviews, nor retry,
    /// because the review client does.
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

    /// Returns the answer about `subject`, from the cache or from the API server. `read` extracts the answer and its
    /// cache duration from the returned review. Without a duration, the answer is not cached.
    ///
    /// # Errors
    /// The API server rejected the review, was unreachable, or did not answer within ten seconds, including the waits
    /// for the limits.
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
            // Fails only on a closed semaphore. This semaphore is never closed.
            let _turn = self.concurrency.acquire().await.ok();
            // The same review may have been answered while this task waited.
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
            // The library does not expose the status of a successful call. A create call returns 201.
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
                 system:auth-delegator. Logged once: {}",
                chain(error)
            ),
            Some(error) => tracing::warn!("the API server does not answer {name}s, so {effect}: {}", chain(error)),
        }
    }
}

/// Whether a retry may help. Mirrors `DefaultShouldRetry` in `pkg/util/webhook/webhook.go`.
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

/// Digest of a review's subject. The subject itself is not stored, because it may be a token.
type SubjectDigest = [u8; 32];

fn question(text: &[u8]) -> SubjectDigest {
    Sha256::digest(text).into()
}

struct ReviewCache<V> {
    capacity: usize,
    answers: Mutex<HashMap<SubjectDigest, (V, Instant)>>,
}

impl<V: Clone> ReviewCache<V> {
    fn new(most: usize) -> Self {
        Self { capacity: most, answers: Mutex::default() }
    }

    fn find(&self, question: &SubjectDigest) -> Option<V> {
        let answers = self.answers.lock();
        answers.get(question).filter(|(_, until)| *until > Instant::now()).map(|(answer, _)| answer.clone())
    }

    /// Caches an answer for the duration `cache_duration`. If the cache is full, evicts the entry that expires first.
    fn remember(&self, question: SubjectDigest, answer: V, cache_duration: Duration) {
        let now = Instant::now();
        // An answer is not cached if its duration is zero, or if its expiry overflows.
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
        // 40 requests are sent at once, the others at a rate of 20 per second.
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
