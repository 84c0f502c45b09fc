//! Nodes that were registered without the taint and without provider ID, and nodes of other providers.

use super::harness::{Form, Start, instance, lines};
use super::{A3, H, ZONES, metadata, zoned};
use ccm::cloud::InstanceMetadata;
use ccm::cloud::node::ANNOTATION_VM;
use ccm::controllers::node::{LabelMode, Policy};
use doubles::memory::{Instance, Memory};
use support::unique;

const UUID: &str = "4212B2D3-0F9A-4B47-9F3A-2D7C0E5A1B6C";

fn machine(name: &str, system_uuid: &str) -> Instance {
    let full = InstanceMetadata { record: "vm-1".into(), ..zoned(metadata(&format!("memory://{name}"), A3)) };
    Instance { system_uuid: system_uuid.into(), ..instance(name, full) }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_without_taint_are_adopted_by_their_uuid_where_that_is_asked_for() {
    for (case, adopts, uuid, is_adopted, reason) in [
        ("by UUID", true, UUID, true, None),
        ("by name alone", true, "", false, Some("NameMatchRefused")),
        ("not asked for", false, UUID, false, None),
    ] {
        let cloud = Memory::default();
        let policy = Policy { adopts_untainted_nodes: adopts, zone_labels: LabelMode::Fill, ..Policy::default() };
        let run = Start::on(&cloud).policy(policy).run().await;
        let name = unique("n");
        cloud.put(machine(&name, uuid));
        let form = Form {
            name: name.clone(),
            system_uuid: uuid.to_lowercase(),
            addresses: lines(H),
            taints: vec!["X".into()],
            ..Form::default()
        };
        run.register(&form).await;
        let expected = if is_adopted { format!("memory://{name}") } else { String::new() };
        let done = run.wait(case, &name, |node| Form::of(node).labels.len() == ZONES.len()).await;
        let done_form = Form::of(&done);
        assert_eq!((done_form.provider_id, done_form.taints), (expected, lines(&["X"])), "{case}");
        assert_eq!(done_form.addresses, A3, "{case}: addresses and labels are kept true as ever");
        let record = is_adopted.then_some("vm-1");
        assert_eq!(ccm::cloud::node::annotation(&done, ANNOTATION_VM), record, "{case}");
        assert_eq!(run.writes(&name).await.len(), 2, "{case}: addresses, and the rest");
        if let Some(reason) = reason {
            run.wait_for_nodes_held(case, reason, true, 1).await;
        }
    }
}
