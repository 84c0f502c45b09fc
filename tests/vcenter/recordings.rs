//! A recording of the field test in place of a vCenter. The clients read the server's answers from the recording.
//!
//! `RECORDING=file` replays the vCenters of another recording. `UPDATE_GOLDEN=1` records the simulator again.

use std::path::{Path, PathBuf};

use ccm::clients::http;
use ccm::clients::{vapi, vim};
use field_test::recording::{Body, Product, Recording, Replay, record, replay};
use field_test::{RunSettings, Servers};
use secrecy::SecretString;
use support::{Nic, Object, Scenario, Vcenter, Vm};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/recordings/vcenter.json");

/// Maximum size of a recording, so that a person can read it.
const LARGEST: usize = 100_000;

/// Title of the only server in the golden recording.
const TITLE: &str = "vCenter 1";

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a vCenter before 8.0 Update 3, which requires a REST login, with a VM for each kind of value.
fn scenario() -> Scenario {
    Scenario::small()
        .api_version("7.0.3.0")
        .vm(Vm::new("node-1", "4211a1b2-1111-4222-8333-000000000001")
            .folder("prod/nodes")
            .host("host-2")
            .guest_host_name("node-1.example.com")
            .nic(Nic::new("VM Network", &["10.0.0.11", "fd00::11", "fe80::250:56ff:fe8a:11"]))
            .extra_config("guestinfo.metadata", "eA=="))
        .vm(Vm::new("a name with spaces", "4211a1b2-1111-4222-8333-000000000002").host("host-3").powered_off())
        .category("k8s-zone", "SINGLE")
        .tag("k8s-zone", "zone-a", [Object::cluster("cluster-1")])
        .tag("k8s-zone", "zone-b", [Object::vm("node-1")])
        .tag("k8s-region", "region-a", [Object::datacenter("dc-1")])
}

/// Returns the recording in the repository, or records it again if `UPDATE_GOLDEN` is set.
async fn golden() -> String {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let vcenter = Vcenter::start(&scenario()).await;
        let folder = tempfile::tempdir().unwrap();
        let (file, recorded) = (folder.path().join("vsphere.conf"), folder.path().join("recording"));
        std::fs::write(&file, vcenter.ini_section("vc", "dc-1")).unwrap();
        let servers = Servers::read(&file).unwrap();
        record(&recorded, servers, &RunSettings::default()).await.unwrap().1.unwrap();
        std::fs::write(GOLDEN, text_of(&recorded)).unwrap();
    }
    text_of(Path::new(GOLDEN))
}

fn parsed(text: &str) -> Recording {
    Recording::parse(text).unwrap_or_else(|why| panic!("the recording: {why}"))
}

#[tokio::test]
async fn the_golden_recording_is_whole_and_small() {
    let text = golden().await;
    assert!(text.len() <= LARGEST, "{} bytes", text.len());
    let end = parsed(&text).end.unwrap();
    assert_eq!((end.cut, end.exchanges), (None, parsed(&text).exchanges.len()));
    for name in [
        "node-",
        "example.com",
        "name with",
        "zone-a",
        "k8s-zone",
        "VM Network",
        "10.0.0.1",
        "fd00",
        "4211a1b2",
        "eA==",
    ] {
        assert!(!text.contains(name), "{name} is in {GOLDEN}");
    }
}

/// The clock is paused, so that recorded waits take no time.
#[tokio::test(start_paused = true)]
async fn the_checks_find_in_a_recording_what_they_found_at_the_server() {
    let path = std::env::var_os("RECORDING").map_or_else(|| GOLDEN.into(), PathBuf::from);
    let recording = parsed(&text_of(&path));
    let vcenters: Vec<_> = recording.servers.iter().filter(|server| server.product == Product::Vcenter).collect();
    assert!(!vcenters.is_empty(), "{} has no vCenter", path.display());
    for server in vcenters {
        let replayed = replay(&recording, &server.title).await.unwrap();
        println!("{}", field_test::Report { servers: vec![replayed.report] }.table());
        assert_eq!(replayed.differences, Vec::<String>::new(), "{}", server.title);
    }
}

/// Returns the differences for a recording with other answers.
async fn differences(text: &str) -> Vec<String> {
    replay(&parsed(text), TITLE).await.unwrap().differences
}

#[tokio::test(start_paused = true)]
async fn a_recording_with_another_answer_is_read_otherwise() {
    let text = text_of(Path::new(GOLDEN));
    for (what, with, expected) in [
        ("ManagedObjectNotFound", "NotFound", "V15: DIFFERS, recorded: holds"),
        ("vmware_soap_session=", "JSESSIONID=", "V04: DIFFERS, recorded: holds"),
        ("RequestCanceled", "SystemError", "V21: DIFFERS, recorded: holds"),
        ("\"status\": 401", "\"status\": 403", "V22: not tried, recorded: holds"),
    ] {
        assert!(text.contains(what), "{what} is not in {GOLDEN}");
        let found = differences(&text.replace(what, with)).await;
        assert!(found.contains(&expected.to_owned()), "{what}: {found:?}");
    }
    let mut recording = parsed(&text);
    let search = recording.exchanges.iter().position(|one| one.operation == "FindAllByUuid").unwrap();
    recording.exchanges.remove(search);
    let found = replay(&recording, TITLE).await.unwrap().differences;
    assert!(found.iter().any(|one| one.starts_with("not recorded: FindAllByUuid POST /sdk")), "{found:?}");
}

/// Returns the text of this element in the first request with this name.
fn sent(recording: &Recording, operation: &str, element: &str) -> String {
    let exchange = recording.exchanges.iter().find(|one| one.operation == operation).unwrap();
    let Body::Xml(lines) = &exchange.request.body else { panic!("{operation} is no SOAP") };
    let (start, end) = (format!("<{element}>"), format!("</{element}>"));
    let text = lines.concat();
    let (_, rest) = text.split_once(&start).unwrap();
    rest.split_once(&end).unwrap().0.to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_clients_read_the_answers_of_the_simulator() {
    let recording = parsed(&text_of(Path::new(GOLDEN)));
    let replay = Replay::of(&recording, TITLE).unwrap();
    let client = http::Client::new(replay.settings()).unwrap();
    let (soap, rest) = (vim::Client::new(client.clone()), vapi::Client::new(client));
    let content = soap.connect().await.unwrap();
    assert_eq!((content.about.api_version.as_str(), content.search_index.id()), ("7.0.3.0", "SearchIndex"));
    assert!(content.about.full_name.starts_with("VMware vCenter Server "), "{}", content.about.full_name);
    let password = SecretString::from("anything");
    soap.login("anybody", &password).await.unwrap();
    assert!(soap.is_logged_in().await.unwrap());
    assert_eq!(soap.has_privilege_on_root("System.Read").await.unwrap(), Some(true));
    let datacenters = soap.retrieve_datacenters().await.unwrap().unwrap();
    let kinds: Vec<_> = datacenters.iter().map(|one| one.object.kind()).collect();
    assert!(kinds.contains(&"Datacenter") && kinds.contains(&"Folder"), "{kinds:?}");

    let uuid = sent(&recording, "FindAllByUuid", "uuid");
    let found = soap.find_all_by_uuid(&uuid).await.unwrap();
    assert_eq!(found.iter().map(vim::MoRef::kind).collect::<Vec<_>>(), ["VirtualMachine"]);
    let swapped = uuid.replacen("-4000-", "-0040-", 1);
    assert_eq!(soap.find_all_by_uuid(&swapped).await.unwrap(), []);
    let never = vim::MoRef::new("VirtualMachine", "vm-2147483601");
    let spec = vim::FilterSpec::of_object(&never, &["name"]);
    let error = soap.retrieve_properties(&spec).await.unwrap_err();
    assert!(error.is_managed_object_not_found(&never), "{error}");

    rest.borrow_session(soap.session_secret().unwrap());
    assert!(rest.list_categories().await.unwrap_err().is_unauthenticated());
    rest.login("anybody", &password).await.unwrap();
    let categories = rest.list_categories().await.unwrap();
    assert_eq!(categories.len(), 2);
    let mut tags = Vec::new();
    for id in &categories {
        assert_eq!(rest.fetch_category(id).await.unwrap().unwrap().id, *id);
        tags.extend(rest.list_tags_of_category(id).await.unwrap().unwrap());
    }
    let rows = rest.list_attached_objects_on_tags(&tags).await.unwrap();
    let mut attached: Vec<_> = rows.iter().flat_map(|row| &row.objects).map(vim::MoRef::kind).collect();
    attached.sort_unstable();
    assert_eq!(attached, ["ClusterComputeResource", "Datacenter", "VirtualMachine"]);
    let vm = rows.iter().flat_map(|row| &row.objects).find(|object| object.kind() == "VirtualMachine").unwrap();
    assert_eq!(vm.id().rsplit_once('-').unwrap().0, "vm", "the VM is named as in SOAP");

    rest.logout().await.unwrap();
    soap.logout().await.unwrap();
    let error = soap.find_all_by_uuid("00000000-0000-0000-0000-00000000f1e1").await.unwrap_err();
    assert!(error.is_not_authenticated(), "{error}");
    assert_eq!(replay.unanswered(), Vec::<String>::new());
}
