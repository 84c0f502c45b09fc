//! The SOAP client's searches and reads with the fake: scopes, pages, rights.

use ccm::clients::vim::{Client, FaultKind, FilterSpec, MoRef};
use secrecy::SecretString;
use support::{FakeVcenter, Model, Trouble};

use super::{connect, timeouts};

async fn logged_in(model: Model) -> (FakeVcenter, Client) {
    let fake = FakeVcenter::start(model).await;
    let client = Client::with_timeouts(connect(&fake), timeouts());
    client.connect().await.unwrap();
    client.login(&fake.user(), &SecretString::from(fake.password())).await.unwrap();
    (fake, client)
}

#[tokio::test]
async fn a_read_of_many_objects_is_all_its_pages_or_an_error() {
    let (fake, client) = logged_in(Model::small().vms(250)).await;
    let machines: Vec<_> = (1..=250).map(|number| MoRef::new("VirtualMachine", format!("vm-{number}"))).collect();
    let view = client.create_list_view(&machines).await.unwrap();
    let spec = FilterSpec::for_view(&view);
    // 250 machines and 9 objects above them.
    let read = client.retrieve_properties(&spec).await.unwrap();
    assert_eq!(read.len(), 259);
    assert_eq!(fake.counts().of("ContinueRetrievePropertiesEx"), 2);
    let nothing = "<Envelope><Body><ContinueRetrievePropertiesExResponse xmlns=\"urn:vim25\"/></Body></Envelope>";
    let nothing = Trouble::Status(200, "text/xml", nothing.to_owned());
    for trouble in [Trouble::Lose, Trouble::Cut(5_000), Trouble::empty(), Trouble::unavailable(), nothing] {
        fake.next_after("ContinueRetrievePropertiesEx", 1, trouble.clone());
        let part = client.retrieve_properties(&spec).await;
        assert!(part.is_err(), "{trouble:?}: {} objects", part.map_or(0, |part| part.len()));
    }
}

#[tokio::test]
async fn gone_and_unreadable_are_told_apart() {
    let (fake, client) = logged_in(Model::small().vms(2)).await;
    let (one, two) = (MoRef::new("VirtualMachine", "vm-1"), MoRef::new("VirtualMachine", "vm-2"));
    fake.destroy_vm("n-1");
    fake.set_readable("VirtualMachine", "n-2", false);
    let gone = client.retrieve_properties(&FilterSpec::of_object(&one, &["name"])).await.unwrap_err();
    assert!(gone.is_managed_object_not_found(&one) && !gone.is_managed_object_not_found(&two), "{gone}");
    let unreadable = client.retrieve_properties(&FilterSpec::of_object(&two, &["name"])).await.unwrap();
    assert_eq!(unreadable.len(), 1, "it is there");
    assert!(unreadable[0].property("name").is_none());
    assert_eq!(unreadable[0].missing[0].path, "name");
}

#[tokio::test]
async fn a_path_that_the_server_does_not_know_is_refused_when_the_filter_is_made() {
    let (_fake, client) = logged_in(Model::small().vms(1)).await;
    let collector = client.create_property_collector().await.unwrap();
    let spec = FilterSpec::of_object(&MoRef::new("VirtualMachine", "vm-1"), &["name", "config.flavour"]);
    let error = client.create_filter(&collector, &spec).await.unwrap_err();
    assert_eq!(error.reason(), "InvalidProperty");
    assert!(error.to_string().contains("config.flavour"), "{error}");
}

#[tokio::test]
async fn a_version_that_was_never_given_out_is_refused_and_the_last_complete_one_may_be_sent_again() {
    let (fake, client) = logged_in(Model::small().vms(2)).await;
    let view = client.create_list_view(&[MoRef::new("VirtualMachine", "vm-1")]).await.unwrap();
    let collector = client.create_property_collector().await.unwrap();
    client.create_filter(&collector, &FilterSpec::for_view(&view)).await.unwrap();
    let wait = async |version: &str| {
        client.wait_for_updates(&collector, version, std::time::Duration::from_secs(1), 100).await
    };
    let first = wait("").await.unwrap().unwrap();
    let unknown = wait("4711").await.unwrap_err();
    assert!(unknown.fault().is_some_and(|fault| fault.kind == FaultKind::InvalidCollectorVersion), "{unknown}");
    for address in ["192.0.2.1", "192.0.2.2"] {
        fake.change_vm("n-1", |vm| vm.ip(address));
        let again = wait(&first.version).await.unwrap().unwrap();
        let objects = &again.filters[0].objects;
        assert_eq!((objects.len(), objects[0].changes.len()), (1, 1), "only what changed since: {objects:?}");
    }
    assert_eq!(wait(&first.version).await.unwrap().unwrap().filters[0].objects.len(), 1);
}
