//! A client of vCenter that waits for changes of all machines as the daemon does, and does no other work.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm::clients::http::{self, TlsSettings, TlsTrust};
use ccm::clients::vim::{self, FilterSpec, MoRef, ObjectSpec, PropertySpec, Selection, Value};
use secrecy::SecretString;
use support::Vcenter;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const WAIT: Duration = Duration::from_secs(55);
const PAGE: u32 = 100;

/// A bare client of vCenter. Its wait ends when this is dropped.
pub struct Bare {
    changes: mpsc::UnboundedReceiver<usize>,
    waiting: JoinHandle<()>,
}

impl Bare {
    /// Logs in, and watches all machines from now on.
    pub async fn follow(vcenter: &Vcenter) -> Self {
        let trust = TlsTrust::Ca { pem: vcenter.ca_pem().as_bytes().to_vec(), path: "ca.pem".to_owned() };
        let tls = TlsSettings { trust, ..TlsSettings::default() };
        let settings = http::Settings::new(vcenter.host(), vcenter.port(), tls, vim::user_agent(None));
        let client = vim::Client::new(http::Client::new(settings).unwrap());
        client.connect().await.unwrap();
        client.login(vcenter.user(), &SecretString::from(vcenter.password().to_owned())).await.unwrap();
        let numbers = machines(&client, &MoRef::new("Folder", "group-d1")).await;
        let view = client.create_list_view(&numbers.keys().cloned().collect::<Vec<_>>()).await.unwrap();
        let collector = client.create_property_collector().await.unwrap();
        client.create_filter(&collector, &FilterSpec::for_view(&view)).await.unwrap();
        let mut version = String::new();
        loop {
            let set = client.wait_for_updates(&collector, &version, WAIT, PAGE).await.unwrap().unwrap();
            version = set.version;
            if !set.truncated {
                break;
            }
        }
        let (sender, changes) = mpsc::unbounded_channel();
        let waiting = tokio::spawn(async move {
            loop {
                let Some(set) = client.wait_for_updates(&collector, &version, WAIT, PAGE).await.unwrap() else {
                    continue;
                };
                version = set.version;
                let objects = set.filters.iter().flat_map(|filter| &filter.objects);
                for number in objects.filter_map(|update| numbers.get(&update.object)) {
                    if sender.send(*number).is_err() {
                        return;
                    }
                }
            }
        });
        Self { changes, waiting }
    }

    /// Returns the number of the next machine that has changed.
    pub async fn next(&mut self) -> usize {
        self.changes.recv().await.expect("the bare client has ended")
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

/// Returns the machines `n-<number>` with their numbers.
async fn machines(client: &vim::Client, root: &MoRef) -> BTreeMap<MoRef, usize> {
    let both = || vec![Selection::named("down"), Selection::named("machines")];
    let ways = vec![
        Selection::along("down", "Folder", "childEntity", both()),
        Selection::along("machines", "Datacenter", "vmFolder", both()),
    ];
    let spec = FilterSpec {
        properties: vec![PropertySpec::new("VirtualMachine", &["name"])],
        objects: vec![ObjectSpec { object: root.clone(), skip: true, select: ways }],
    };
    let found = client.retrieve_properties(&spec).await.unwrap();
    let number = |name: Option<&Value>| name?.as_str()?.strip_prefix("n-")?.parse().ok();
    found.into_iter().filter_map(|one| Some((one.object.clone(), number(one.property("name"))?))).collect()
}
