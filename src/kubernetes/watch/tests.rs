//! Tests of one watch, on a paused clock.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn events_extend_a_watch_only_where_the_policy_says_so() {
    for (is_extended_by_events, ends) in [(false, 65), (true, 115)] {
        let policy = WatchPolicy { seconds: 60..61, call_limit: SECOND, is_extended_by_events };
        let event = async {
            tokio::time::sleep(50 * SECOND).await;
            Ok(WatchEvent::Added(()))
        };
        let began = Instant::now();
        let mut events = EventStream::new(futures::stream::once(event).chain(futures::stream::pending()), 60, &policy);
        assert!(matches!(events.next().await, Ok(Some(Event::Applied(())))));
        assert!(matches!(events.next().await, Err(Failure::Silent(idle)) if idle == 65 * SECOND));
        assert_eq!(began.elapsed().as_secs(), ends);
    }
}
