//! Logging in to vCenter and NSX without locking the account. Each product locks an account after about five rejected
//! logins.
//!
//! `app` reads the sources of credentials (the cloud config, Secrets, directories) and publishes one `Offers` watch for
//! each vCenter entry and NSX Manager: see `credentials`. The sessions (`vcenter::session`, `nsx::session`) follow this
//! watch and are the only code that logs in.
//!
//! Two limits apply to each login, to which `nsx::session` adds pauses of its own after failures. `schedule`, local to
//! this process, picks the credential to try next and backs off after a rejection (`retry`). The login throttle
//! (`cloud::login_ledger`), shared by all replicas, then grants or delays the attempt by the `policy` of the product.
//! `attempt` claims each login from both, and reports its outcome to both.
//!
//! A new credential is tried while the current session stays open, so that a wrong credential interrupts nothing.

pub(in crate::providers::vsphere) mod attempt;
pub mod credentials;
pub mod policy;
pub mod retry;
pub(in crate::providers::vsphere) mod schedule;

pub use schedule::LoginPause;
