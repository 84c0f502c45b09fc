//! Reads what the account may see, for the command `check`.

use tokio::time::timeout;

use super::datacenters::{LIST_LIMIT, missing};
use super::reads::READ_PRIVILEGE;
use super::{RIGHTS_LIMIT, Vcenter};
use crate::base::error_chain::chain;
use crate::providers::vsphere::vcenter::scope;

/// What the account may see, read with the session in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountReads {
    /// Number of datacenters that the account sees.
    pub datacenters: Result<usize, String>,
    /// The text about configured datacenters that the account does not see, if any.
    pub missing_datacenters: Option<String>,
    /// Whether the account has the privilege `System.Read` on the root folder; `None` if vCenter does not tell.
    pub reads_root: Result<Option<bool>, String>,
}

impl Vcenter {
    /// Reads what the account may see. `configured` are the configured datacenters. Makes two calls and no login.
    pub async fn read_account(&self, configured: &[String]) -> AccountReads {
        let soap = self.session().soap();
        let late = || "vCenter did not answer in time".to_owned();
        let listed = match timeout(LIST_LIMIT, soap.retrieve_datacenters()).await {
            Ok(Ok(objects)) => Ok(scope::datacenters(&objects.unwrap_or_default())),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err(late()),
        };
        let reads_root = match timeout(RIGHTS_LIMIT, soap.has_privilege_on_root(READ_PRIVILEGE)).await {
            Ok(answer) => answer.map_err(|error| chain(&error)),
            Err(_) => Err(late()),
        };
        AccountReads {
            missing_datacenters: listed.as_ref().ok().and_then(|present| missing(configured, present)),
            datacenters: listed.map(|present| present.len()),
            reads_root,
        }
    }
}
