//! A process that ends at any step. The next process reaches the same state as without the interruption.

use doubles::memory::Call;

use super::harness::Form;
use super::world::{World, go_by, networks, watching};

/// A change of the cluster.
#[derive(Clone, Copy, Debug)]
enum Event {
    Joins,
    ChangesNetwork,
    IsDeleted,
}

/// Final state: the routes, and the conditions of both nodes.
type End = (Vec<String>, [Option<String>; 2]);

/// Runs a process on this event and stops it after this many steps. Returns the final state, and whether the process
/// stopped.
async fn end(event: Event, steps: Option<usize>) -> (End, bool) {
    let world = World::start(watching()).await;
    let (other, node) =
        (Form::new("other", &["10.120.0.0/24"], "10.0.1.1"), Form::new("n", &["10.120.1.0/24"], "10.0.2.1"));
    world.put(&other);
    if !matches!(event, Event::Joins) {
        world.put(&node);
    }
    go_by(30).await;
    if let Some(steps) = steps {
        world.cloud.steps.stop_after(steps);
    }
    match event {
        Event::Joins => drop(world.put(&node)),
        Event::ChangesNetwork => world.change("n", &networks(&["10.120.2.0/24"])),
        Event::IsDeleted => world.remove("n"),
    }
    go_by(30).await;
    let is_over = world.cloud.steps.are_over();
    let (server, cloud) = (world.server.clone(), world.cloud.for_next_process());
    drop(world);
    let next = World::on(server, cloud, watching()).await;
    go_by(30).await;
    let changes = || next.cloud.memory.count(Call::CreateRoute) + next.cloud.memory.count(Call::DeleteRoute);
    let (made, written) = (changes(), next.writes());
    go_by(600).await;
    assert_eq!((changes(), next.writes()), (made, written), "{event:?}, {steps:?}: all is done");
    ((next.cloud.routes(), ["other", "n"].map(|name| next.condition(name))), is_over)
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_at_any_step_leaves_nothing_that_the_next_one_does_not_finish() {
    let (other, created) = ("other 10.120.0.0/24 10.0.1.1", Some("False RouteCreated".to_owned()));
    for (event, routes, condition, least) in [
        (Event::Joins, vec!["n 10.120.1.0/24 10.0.2.1", other], created.clone(), 6),
        (Event::ChangesNetwork, vec!["n 10.120.2.0/24 10.0.2.1", other], created.clone(), 8),
        (Event::IsDeleted, vec![other], None, 6),
    ] {
        let routes = routes.into_iter().map(str::to_owned).collect();
        let expected: End = (routes, [created.clone(), condition]);
        assert_eq!(end(event, None).await, (expected.clone(), false), "{event:?}");
        let mut steps = 0;
        loop {
            let (end, is_over) = end(event, Some(steps)).await;
            assert_eq!(end, expected, "{event:?}, step {steps}");
            if !is_over {
                break;
            }
            steps += 1;
        }
        assert!(steps >= least, "{event:?} took {steps} steps");
    }
}
