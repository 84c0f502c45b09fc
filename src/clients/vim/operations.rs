//! Operations of a session: searches for VMs, views, filters, single reads of properties, and waits for changes. Views
//! and filters end with their session.

use std::time::Duration;

use super::call::{VimCall, nothing, reference, references, return_value};
use super::decoder::{DecodeError, Decoder};
use super::envelope::RequestBody;
use super::updates::{Page, read_page, read_update_set};
use super::{Client, Error, FilterSpec, MoRef, ObjectContent, UpdateSet};

/// Requested page size of a read, in objects. Servers send at most 100 objects per page.
const PAGE: u32 = 100;

/// Maximum number of pages of a read, enough for 100,000 objects.
const MAX_PAGES: usize = 1_000;

impl Client {
    /// Returns the VMs with this BIOS UUID that the user can read. Several VMs may have the same UUID. The UUID is sent
    /// in lower case, because the simulator compares exactly.
    pub async fn find_all_by_uuid(&self, uuid: &str) -> Result<Vec<MoRef>, Error> {
        let mut body = self.search_body("uuid", &uuid.to_ascii_lowercase());
        body.boolean("instanceUuid", false);
        self.read("FindAllByUuid", body, references).await
    }

    /// Returns the VMs whose guest reports exactly this host name.
    pub async fn find_all_by_dns_name(&self, name: &str) -> Result<Vec<MoRef>, Error> {
        self.read("FindAllByDnsName", self.search_body("dnsName", name), references).await
    }

    /// Returns the VMs whose guest reports this address.
    pub async fn find_all_by_ip(&self, address: &str) -> Result<Vec<MoRef>, Error> {
        self.read("FindAllByIp", self.search_body("ip", address), references).await
    }

    fn search_body(&self, key: &str, value: &str) -> RequestBody {
        let mut body = RequestBody::of(&self.content().search_index);
        body.text(key, value);
        body.boolean("vmSearch", true);
        body
    }

    /// Creates a view of these objects. A server accepts at most 500,000 elements in one request. The caller must add a
    /// longer list in parts, with [`Client::modify_list_view`].
    pub async fn create_list_view(&self, objects: &[MoRef]) -> Result<MoRef, Error> {
        let mut body = RequestBody::of(&self.content().view_manager);
        for object in objects {
            body.reference("obj", object);
        }
        self.write("CreateListView", body, reference).await
    }

    /// Adds and removes objects of a view. Returns the objects that the server could not resolve. The limit of
    /// [`Client::create_list_view`] applies.
    pub async fn modify_list_view(&self, view: &MoRef, add: &[MoRef], remove: &[MoRef]) -> Result<Vec<MoRef>, Error> {
        let mut body = RequestBody::of(view);
        for object in add {
            body.reference("add", object);
        }
        for object in remove {
            body.reference("remove", object);
        }
        self.write("ModifyListView", body, references).await
    }

    /// Destroys a view.
    pub async fn destroy_view(&self, view: &MoRef) -> Result<(), Error> {
        self.write("DestroyView", RequestBody::of(view), nothing).await
    }

    /// Creates a separate property collector. Each collector has only one sequence of versions and one pending wait.
    pub async fn create_property_collector(&self) -> Result<MoRef, Error> {
        let body = RequestBody::of(&self.content().property_collector);
        self.write("CreatePropertyCollector", body, reference).await
    }

    /// Destroys a collector with its filters. A pending wait ends.
    pub async fn destroy_property_collector(&self, collector: &MoRef) -> Result<(), Error> {
        self.write("DestroyPropertyCollector", RequestBody::of(collector), nothing).await
    }

    /// Adds a filter to a collector. Changes are reported at the requested paths, with complete new values.
    pub async fn create_filter(&self, collector: &MoRef, spec: &FilterSpec) -> Result<MoRef, Error> {
        let mut body = RequestBody::of(collector);
        body.open("spec");
        spec.write(&mut body);
        body.close("spec");
        body.boolean("partialUpdates", false);
        self.write("CreateFilter", body, reference).await
    }

    /// Waits for changes since `version`. The empty version requests the full state. Returns `None` if nothing changed
    /// within `max_wait`; `version` then stays valid. Never run two waits at a time on one collector.
    ///
    /// The time limit is `max_wait` plus `Timeouts::wait_margin`, which is doubled for the full state. Dropping the
    /// future does not end the wait on the server; [`Client::cancel_wait_for_updates`] ends it.
    pub async fn wait_for_updates(
        &self,
        collector: &MoRef,
        version: &str,
        max_wait: Duration,
        max_updates: u32,
    ) -> Result<Option<UpdateSet>, Error> {
        let mut body = RequestBody::of(collector);
        body.text("version", version);
        body.open("options");
        body.text("maxWaitSeconds", &max_wait.as_secs().to_string());
        body.text("maxObjectUpdates", &max_updates.max(1).to_string());
        body.close("options");
        let margin = self.inner.timeouts.wait_margin.saturating_mul(if version.is_empty() { 2 } else { 1 });
        let timeout = max_wait.saturating_add(margin);
        // The version of a truncated answer is valid only once, so the caller decides whether to repeat the call.
        let call = VimCall { method: "WaitForUpdatesEx", timeout, repeatable: false };
        self.call(call, body, |decoder| return_value(decoder, |decoder, _| read_update_set(decoder))).await
    }

    /// Makes a pending wait fail with `RequestCanceled`.
    pub async fn cancel_wait_for_updates(&self, collector: &MoRef) -> Result<(), Error> {
        self.write("CancelWaitForUpdates", RequestBody::of(collector), nothing).await
    }

    /// Reads the root folder, all folders below it, and the datacenters in these folders, each with `name` and
    /// `parent`, as far as the account can see them. Returns `None` if the server reports no root folder.
    pub async fn retrieve_datacenters(&self) -> Result<Option<Vec<ObjectContent>>, Error> {
        let Some(root) = self.content().root_folder else { return Ok(None) };
        self.retrieve_properties(&FilterSpec::datacenters(&root)).await.map(Some)
    }

    /// Reads all pages of properties once, through the default collector of the session. The result may be empty.
    ///
    /// # Errors
    /// An error if any page fails. A partial result is never returned.
    pub async fn retrieve_properties(&self, spec: &FilterSpec) -> Result<Vec<ObjectContent>, Error> {
        let collector = self.content().property_collector;
        let mut body = RequestBody::of(&collector);
        body.open("specSet");
        spec.write(&mut body);
        body.close("specSet");
        body.open("options");
        body.text("maxObjects", &PAGE.to_string());
        body.close("options");
        let Page { mut objects, mut token } = self.read("RetrievePropertiesEx", body, page).await?.unwrap_or_default();
        let mut pages = 1;
        while let Some(announced) = token {
            if pages == MAX_PAGES {
                let found = format!("more than {MAX_PAGES} pages");
                let request = self.inner.http.failed("ContinueRetrievePropertiesEx");
                return Err(Error::Malformed(request, DecodeError::Unexpected { element: "token", found }));
            }
            pages += 1;
            let mut body = RequestBody::of(&collector);
            body.text("token", &announced);
            // An answer without the announced page is malformed, not complete.
            let next = |decoder: &mut Decoder<'_>| page(decoder)?.ok_or(DecodeError::Missing("returnval"));
            // A token is valid only once, so the call must not be repeated.
            let next = self.write("ContinueRetrievePropertiesEx", body, next).await?;
            objects.extend(next.objects);
            token = next.token;
        }
        Ok(objects)
    }
}

fn page(decoder: &mut Decoder<'_>) -> Result<Option<Page>, DecodeError> {
    return_value(decoder, |decoder, _| read_page(decoder))
}
