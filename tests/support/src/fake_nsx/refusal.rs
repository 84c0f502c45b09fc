//! Error answers in the wording of NSX.

use serde_json::{Value, json};

use crate::fake_server::http::Reply;

/// An error answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: Option<i64>,
    module: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: u16, code: impl Into<Option<i64>>, message: impl Into<String>) -> Self {
        let code = code.into();
        let module = if code.is_some_and(|code| code >= 100_000) { "policy" } else { "common-services" };
        Self { status, code, module, message: message.into() }
    }

    pub(super) fn not_found(path: &str) -> Self {
        let text = "could not be found. Object identifiers are case sensitive.";
        Self::new(404, 600, format!("The requested object : {path} {text}"))
    }

    /// The body refers to an object that does not exist.
    pub(super) fn missing_reference(path: &str, is_invalid: bool) -> Self {
        match is_invalid {
            true => Self::new(400, 500_012, format!("The path=[{path}] is invalid")),
            false => Self::not_found(path),
        }
    }

    /// A field or parameter has a wrong value.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, 255, format!("Field level validation errors: {{{}}}", message.into()))
    }

    pub(super) fn method_not_allowed() -> Self {
        Self::new(405, None, "Request method is not supported")
    }

    /// User name or password is wrong, or the account is locked.
    pub(super) fn rejected(is_401: bool) -> Self {
        let message = "The credentials were incorrect or the account specified has been locked.";
        Self::new(if is_401 { 401 } else { 403 }, 403, message)
    }

    /// There are no credentials, or the session or token has expired and the manager does not answer with
    /// [`Self::rejected`].
    pub(super) fn unauthenticated(message: &str) -> Self {
        Self::new(401, 401, message)
    }

    /// The XSRF token of the session is missing or wrong.
    pub(super) fn invalid_token() -> Self {
        Self::new(403, 98, "The XSRF token or the session is invalid.")
    }

    /// The role of the account lacks a permission. NSX names neither the account nor the object.
    pub(super) fn no_permission() -> Self {
        let message = "User is not authorized to perform this operation on the application. Please contact the system \
                       administrator to get access.";
        Self::new(403, 401, message)
    }

    /// The licence does not include the requested feature.
    pub(super) fn unlicensed() -> Self {
        Self::new(403, 505, "The requested operation is not allowed by the licenses of this NSX deployment.")
    }

    /// The client sends too many requests per second.
    pub(super) fn throttled(message: impl Into<String>) -> Self {
        Self::new(429, 102, message)
    }

    /// Services of the manager have not started, or have failed.
    pub(super) fn components_down() -> Self {
        Self::new(503, 101, "Some appliance components are not functioning properly.")
    }

    /// The manager is starting.
    pub(super) fn starting() -> Self {
        Self::new(500, 98, "The server is starting and cannot process requests yet.")
    }

    /// The object belongs to another principal.
    pub(super) fn protected(user: &str, path: &str, owner: &str) -> Self {
        let message = format!(
            "Principal '{user}' attempts to delete or modify an object {path} it doesn't own. (createUser={owner}, \
             allowOverwrite=null)"
        );
        Self::new(403, 289, message)
    }

    pub(super) fn is_marked(path: &str) -> Self {
        let message = format!("The path {path} is marked for deletion. Wait for the purge or use another id.");
        Self::new(400, 500_045, message)
    }

    pub(super) fn is_referenced(path: &str, by: &[String]) -> Self {
        let by = by.join(", ");
        let message = format!(
            "The object path=[{path}] cannot be deleted as either it has children or it is being referenced by other \
             objects path=[{by}]."
        );
        Self::new(400, 500_030, message)
    }

    /// Returns the body, with the fields of this error.
    pub(super) fn body(&self) -> Value {
        let mut body =
            json!({"httpStatus": reason(self.status), "module_name": self.module, "error_message": self.message});
        if let Some(code) = self.code {
            // For a rate limit NSX sends the code as text.
            body["error_code"] = if self.status == 429 { json!(code.to_string()) } else { json!(code) };
        }
        body
    }

    pub(super) fn reply(&self) -> Reply {
        Reply::new(self.status, "application/json", self.body().to_string())
    }
}

fn reason(status: u16) -> String {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    reason.unwrap_or("UNKNOWN").to_uppercase().replace([' ', '-'], "_")
}
