//! Finding virtual machines: `SearchIndex`. Only objects the user may read are found.

use super::call::references;
use super::envelope::Body;
use super::{Client, Error, MoRef};

impl Client {
    /// The virtual machines with this BIOS UUID, in the datacenter or anywhere. None found is an empty list. The UUID
    /// is sent in lower case: the simulator compares exactly. A UUID is not guaranteed to be unique.
    pub async fn find_all_by_uuid(&self, datacenter: Option<&MoRef>, uuid: &str) -> Result<Vec<MoRef>, Error> {
        let mut body = self.search_body(datacenter, "uuid", &uuid.to_ascii_lowercase());
        body.boolean("instanceUuid", false);
        self.read("FindAllByUuid", body, references).await
    }

    /// The virtual machines whose guest reports exactly this host name.
    pub async fn find_all_by_dns_name(&self, datacenter: Option<&MoRef>, name: &str) -> Result<Vec<MoRef>, Error> {
        self.read("FindAllByDnsName", self.search_body(datacenter, "dnsName", name), references).await
    }

    /// The virtual machines whose guest reports this address.
    pub async fn find_all_by_ip(&self, datacenter: Option<&MoRef>, address: &str) -> Result<Vec<MoRef>, Error> {
        self.read("FindAllByIp", self.search_body(datacenter, "ip", address), references).await
    }

    fn search_body(&self, datacenter: Option<&MoRef>, key: &str, value: &str) -> Body {
        let mut body = Body::of(&self.content().search_index);
        if let Some(datacenter) = datacenter {
            body.reference("datacenter", datacenter);
        }
        body.text(key, value);
        body.boolean("vmSearch", true);
        body
    }
}
