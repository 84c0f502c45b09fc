//! The Events about routes, and their number.

use ccm::cloud::Error;

use super::harness::Form;
use super::world::{World, go_by, watching};

const NETWORK: &str = "10.120.0.0/24";

#[tokio::test(start_paused = true)]
async fn each_change_of_the_reason_is_one_event() {
    let world = World::start(watching()).await;
    world.cloud.fail(NETWORK, || Error::other("no more routes"));
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(600).await;
    assert_eq!(world.server.events("FailedToCreateRoute").len(), 1);
    world.cloud.fail(NETWORK, || Error::Denied { message: "not allowed".into() });
    go_by(600).await;
    let events = world.server.events("FailedToCreateRoute");
    assert!(events.len() == 2 && events[1].ends_with(": not allowed"), "{events:?}");
    world.cloud.end_failure(NETWORK);
    go_by(61).await;
    assert_eq!(world.cloud.routes().len(), 1);
    assert_eq!(world.server.events("FailedToCreateRoute").len(), 2);
}
