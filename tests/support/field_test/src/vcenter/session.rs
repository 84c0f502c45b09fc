//! Checks of the session: calls without one, its start, the permissions of the account, and its end.

use ccm::clients::http::Settings;
use ccm::clients::vim::{self, ServiceContent};
use ccm::clients::{http, session_manager, sts};
use ccm::providers::vsphere::login::credentials::{Login, SessionToken};
use jiff::Timestamp;
use secrecy::SecretString;

use super::beliefs::{CONTENT, CURRENT_SESSION, FIXED_IDS, LOGIN, LOGOUT, PRIVILEGE, ROOT, VERSIONS};
use super::search::NO_UUID;
use super::{Check, Ended};
use crate::servers::VcenterServer;
use crate::{REJECTED, UNUSABLE_SETTINGS};

/// The privilege that the product checks.
const READ: &str = "System.Read";

/// Connects and logs in, once.
pub(super) async fn begin(check: &mut Check, server: &VcenterServer, login: &Login) -> Result<ServiceContent, Ended> {
    let content = match check.soap.connect().await {
        Ok(content) => content,
        Err(error) => {
            check.failed(&CONTENT, &error)?;
            return Err(Ended(format!("it is not usable as a vCenter: {}", error.reason())));
        }
    };
    let exchanges = check.wire.take();
    let versions = exchanges.iter().find(|exchange| exchange.operation == "vimServiceVersions");
    let status = versions.and_then(|exchange| exchange.status);
    check.sheet.judge(
        &VERSIONS,
        status == Some(200),
        status.map_or("no answer".to_owned(), |of| format!("status {of}")),
    );
    check.sheet.judge(&CONTENT, true, format!("API version {}", content.about.api_version));
    let fixed = [
        (&content.property_collector, "propertyCollector"),
        (&content.view_manager, "ViewManager"),
        (&content.search_index, "SearchIndex"),
        (&content.session_manager, "SessionManager"),
    ];
    let others = fixed.iter().filter(|(object, id)| object.id() != *id).count();
    check.sheet.judge(&FIXED_IDS, others == 0, format!("{others} of 4 have another id"));
    let (by, presented) = match login {
        Login::Password { user, password } => ("", check.soap.login(user, password).await),
        Login::Certificate { certificate, key } => {
            let token = sts::issue(&check.http, certificate, key, Timestamp::now()).await.map_err(no_token)?;
            let presented = check.soap.login_by_token(&token, Timestamp::now()).await;
            check.token = Some(token);
            (" by a token for the certificate", presented)
        }
        Login::SharedSession { url, token } => {
            let ticket = ticket(server, url, token).await?;
            (" by a ticket of the session manager", check.soap.clone_session(&ticket).await)
        }
    };
    match presented {
        Ok(()) => {
            let has_cookie = check.soap.session_secret().is_some();
            let without = if has_cookie { "" } else { ", without the cookie" };
            check.sheet.judge(&LOGIN, has_cookie, format!("logged in{by}{without}"));
        }
        Err(error) if error.is_invalid_login() => {
            return Err(Ended(REJECTED.to_owned()));
        }
        Err(error) => {
            check.failed(&LOGIN, &error)?;
            return Err(Ended(format!("the login failed: {}", error.reason())));
        }
    }
    match check.soap.is_logged_in().await {
        Ok(is_logged_in) => {
            check.sheet.judge(&CURRENT_SESSION, is_logged_in, if is_logged_in { "it is set" } else { "it is not set" });
        }
        Err(error) => check.failed(&CURRENT_SESSION, &error)?,
    }
    Ok(content)
}

/// Returns the reason why the token service issues no token. A rejected certificate is not tried again.
fn no_token(error: sts::Error) -> Ended {
    match error {
        error if error.is_invalid_login() => Ended(REJECTED.to_owned()),
        error => Ended(format!("the token service issues no token: {}", error.reason())),
    }
}

/// Fetches a ticket from the session manager, once. Its answer is not in the table, because the session manager is not
/// the tested server.
async fn ticket(server: &VcenterServer, url: &str, token: &SessionToken) -> Result<SecretString, Ended> {
    let token = match token {
        SessionToken::Given(token) => token.clone(),
        SessionToken::ServiceAccount(account) => {
            account.read().await.map_err(|_| Ended("there is no token for the session manager".to_owned()))?
        }
    };
    // The transport of a recording sends to the tested server only, and this token is for another server.
    let settings = Settings { transport: None, ..server.http.clone() };
    let http = http::Client::new(settings).map_err(|_| Ended(UNUSABLE_SETTINGS.to_owned()))?;
    session_manager::fetch_ticket(&http, url, &token).await.map_err(|error| match error {
        error if error.is_invalid_login() => Ended(REJECTED.to_owned()),
        error => Ended(format!("the session manager gives no ticket: {}", error.reason())),
    })
}

/// Checks the permissions of the account on the root folder.
pub(super) async fn rights(check: &mut Check, content: &ServiceContent) -> Result<(), Ended> {
    match check.soap.has_privilege_on_root(READ).await {
        Ok(Some(has)) => check.sheet.judge(&PRIVILEGE, true, format!("{READ}: {}", if has { "yes" } else { "no" })),
        Ok(None) => {
            check.sheet.judge(&PRIVILEGE, false, "the server names no authorization manager, folder or session key")
        }
        Err(error) => check.failed(&PRIVILEGE, &error)?,
    }
    match check.soap.retrieve_datacenters().await {
        Ok(None) => check.sheet.judge(&ROOT, false, "the server names no root folder"),
        Ok(Some(objects)) => {
            let of = |kind: &str| objects.iter().filter(|object| object.object.kind() == kind).count();
            let is_whole = |object: &vim::ObjectContent| {
                let is_root = content.root_folder.as_ref() == Some(&object.object);
                object.property("name").is_some() && (is_root || object.property("parent").is_some())
            };
            let incomplete = objects.iter().filter(|object| !is_whole(object)).count();
            let (datacenters, folders) = (of("Datacenter"), of("Folder"));
            let seen = format!("{datacenters} datacenters, {folders} folders, {incomplete} without name or parent");
            check.sheet.judge(&ROOT, datacenters > 0 && incomplete == 0, seen);
        }
        Err(error) => check.failed(&ROOT, &error)?,
    }
    Ok(())
}

/// Logs out, and makes a call without a session.
pub(super) async fn end(check: &mut Check) -> Result<(), Ended> {
    let _ = check.rest.logout().await;
    if let Err(error) = check.soap.logout().await {
        return check.failed(&LOGOUT, &error);
    }
    match check.soap.find_all_by_uuid(NO_UUID).await {
        Ok(_) => check.sheet.judge(&LOGOUT, false, "the call was served"),
        Err(error) if error.is_not_authenticated() => check.sheet.judge(&LOGOUT, true, "NotAuthenticated"),
        Err(error) => check.failed(&LOGOUT, &error)?,
    }
    Ok(())
}
