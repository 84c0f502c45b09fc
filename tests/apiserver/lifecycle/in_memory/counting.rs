//! The controller counts the absent machines before it deletes the first Node.

use super::world::{MOMENT, World, is, pass, seconds, settings};
use ccm::cloud::{InstanceEvent, PowerState};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn an_answer_that_an_event_overtook_counts_as_none() {
    let world = World::start(settings()).await;
    (0..12).for_each(|number| drop(world.create(&format!("well-{number}"), "True", PowerState::On)));
    let silent: Vec<String> = (0..6).map(|number| format!("silent-{number}")).collect();
    for name in &silent {
        world.create(name, "Unknown", PowerState::On);
        world.hide(name);
    }
    pass(MOMENT).await;
    world.lose("a");
    pass(seconds(27)).await;
    // The machines of these nodes are absent, too. An event invalidates the first answer about that, and the next
    // answer takes long.
    let cloud = world.cloud.clone();
    let mut overtaken = Vec::new();
    world.hook(move |name, _| {
        if !name.starts_with("silent") {
            return Duration::ZERO;
        }
        if overtaken.contains(&name.to_owned()) {
            return seconds(10);
        }
        overtaken.push(name.to_owned());
        let (cloud, event) = (cloud.clone(), InstanceEvent::Node(name.to_owned()));
        tokio::spawn(async move {
            pass(MOMENT).await;
            cloud.announce(event);
        });
        2 * MOMENT
    });
    for name in &silent {
        world.destroy(name);
        world.show(name);
    }
    pass(seconds(60)).await;
    assert_eq!(world.deletions(), [""; 0], "seven are gone at once");
    assert_eq!(world.held("DeletionMassHold"), 7);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_an_event_overtook_starts_no_grace_period() {
    let world = World::start(settings()).await;
    let cloud = world.cloud.clone();
    world.hook(move |name, number| match number {
        1 => {
            let (cloud, event) = (cloud.clone(), InstanceEvent::Node(name.to_owned()));
            tokio::spawn(async move {
                pass(MOMENT).await;
                cloud.announce(event);
            });
            2 * MOMENT
        }
        // The answer that counts.
        2 => seconds(10),
        _ => Duration::ZERO,
    });
    world.lose("a");
    pass(seconds(38)).await;
    assert!(world.is_there("a"), "the grace period began with the second answer");
    pass(seconds(5)).await;
    assert!(!world.is_there("a"));
}

#[tokio::test(start_paused = true)]
async fn a_remembered_answer_that_says_nothing_holds_up_no_other_node() {
    let world = World::start(settings()).await;
    let silent: Vec<String> = (0..12).map(|number| format!("silent-{number}")).collect();
    for name in &silent {
        world.create(name, "Unknown", PowerState::On);
        world.hide(name);
    }
    // Until the answers have been cached for a minute.
    pass(seconds(200)).await;
    world.lose("a");
    pass(seconds(25)).await;
    // Each Node is Ready for a short time.
    for ready in ["True", "Unknown"] {
        silent.iter().for_each(|name| world.server.with(|state| state.change(name, &is(ready))));
        pass(MOMENT).await;
    }
    pass(seconds(7)).await;
    assert!(!world.is_there("a"), "one machine is gone, and of the others nobody can say anything");
}
