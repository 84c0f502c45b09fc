//! Limits on rejected logins to vCenter and NSX.

use std::time::Duration;

use crate::cloud::login_ledger::LoginPolicy;

/// Limits for vCenter, whose single sign-on locks an account after about five rejections in three minutes.
pub const LOGIN_POLICY: LoginPolicy =
    LoginPolicy { scope: "", window: Duration::from_secs(200), budget: 3, budget_alone: 1 };

/// Limits for NSX. By default NSX locks an account for 15 minutes after five rejections in a row. An attempt during
/// that time prolongs the lock.
pub const NSX_LOGIN_POLICY: LoginPolicy =
    LoginPolicy { scope: "nsx", window: Duration::from_secs(15 * 60), budget: 3, budget_alone: 1 };
