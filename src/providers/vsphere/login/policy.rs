//! Limits on rejected logins: how many the accounts of vCenter and NSX tolerate.

use std::time::Duration;

use crate::cloud::login_ledger::LoginPolicy;

/// vCenter's single sign-on locks an account after about five rejections in three minutes.
pub const LOGIN_POLICY: LoginPolicy =
    LoginPolicy { scope: "", window: Duration::from_secs(200), budget: 3, budget_alone: 1 };

/// By default NSX locks an account for 15 minutes after five rejections in a row; an attempt during that time prolongs
/// it.
pub const NSX_LOGIN_POLICY: LoginPolicy =
    LoginPolicy { scope: "nsx", window: Duration::from_secs(15 * 60), budget: 3, budget_alone: 1 };
