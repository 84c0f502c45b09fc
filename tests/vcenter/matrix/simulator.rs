//! The rows on the simulator, with the faults that its front supports.

use std::rc::Rc;
use std::time::Duration;

use support::Rule;
use support::vcenter::Vcenter;

use super::scene::Scene;
use super::{Felt, Row, simulated, simulator_of};

fn row<F>(id: &str, felt: Felt, begin: impl Fn(Rc<Scene>) -> F + 'static) -> Row
where
    F: Future<Output = ()> + 'static,
{
    let end = simulated(|scene: Rc<Scene>| async move { simulator_of(&scene).clear_rules().await });
    let row = Row::new(format!("simulator, {id}"), felt, simulated(begin)).end(end);
    Row { is_simulator: true, ..row }
}

async fn set_up_anew(simulator: &Vcenter) {
    simulator.kill_soap_sessions().await;
}

fn ruled(id: &str, felt: Felt, rule: Rule) -> Row {
    row(id, felt, move |scene: Rc<Scene>| {
        let rule = rule.clone();
        async move {
            let simulator = simulator_of(&scene);
            simulator.add_rule(&rule).await;
            if matches!(felt, Felt::Stale) {
                set_up_anew(simulator).await;
            }
        }
    })
}

pub fn all() -> Vec<Row> {
    let down = row("8.7 vCenter is down", Felt::Stale, |scene: Rc<Scene>| async move {
        simulator_of(&scene).stop_listening().await;
    });
    let up = simulated(|scene: Rc<Scene>| async move { simulator_of(&scene).resume_listening().await });
    let attached = Felt::Tags;
    let objects = "REST:list-attached-objects-on-tags";
    let html = "<html><body><h1>503 Service Unavailable";
    vec![
        ruled("8.4 SystemError for every wait", Felt::Stale, Rule::fault("WaitForUpdatesEx", "SystemError")),
        ruled("8.4 NotAuthenticated for every filter", Felt::Stale, Rule::fault("CreateFilter", "NotAuthenticated")),
        ruled("8.4 a search fails", Felt::Counted("FindAllByUuid", 1), Rule::fault("FindAllByUuid", "RuntimeFault")),
        ruled("8.4 503 for every wait", Felt::Stale, Rule::status("WaitForUpdatesEx", 503, html)),
        ruled("8.4 502 for every read", Felt::Stale, Rule::status("RetrieveServiceContent", 502, html)),
        ruled("8.6 InvalidCollectorVersion", Felt::Stale, Rule::fault("WaitForUpdatesEx", "InvalidCollectorVersion")),
        ruled("8.6 waits are cut", Felt::Stale, Rule::cut("WaitForUpdatesEx")),
        ruled("8.6 waits are dropped", Felt::Stale, Rule::drop("WaitForUpdatesEx")),
        ruled("8.6 filters hang", Felt::Stale, Rule::hang("CreateFilter")).pause(16),
        ruled("8.6 slow calls", Felt::Follows, Rule::delay("*", Duration::from_millis(150))),
        row("8.7 the session ends", Felt::Stale, |scene: Rc<Scene>| async move {
            set_up_anew(simulator_of(&scene)).await;
        })
        .pause(2),
        down.end(up),
        row("8.11 the REST session ends", Felt::Counted("REST:session-login", 1), |scene: Rc<Scene>| async move {
            simulator_of(&scene).kill_rest_sessions().await;
        }),
        ruled("8.11 503 for tags", attached, Rule::status(objects, 503, html)),
        ruled("8.11 tags are cut", attached, Rule::cut(objects)),
        ruled("8.11 tags are dropped", attached, Rule::drop(objects)),
    ]
}
