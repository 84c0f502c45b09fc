//! Faults that a test injects into calls.

use std::time::Duration;

use super::inventory::Ref;
use super::xml::escape;

/// A `vim25` fault of any type, with its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    kind: String,
    fields: String,
    text: String,
}

impl Fault {
    /// A fault without fields, such as `InvalidCollectorVersion`.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), fields: String::new(), text: format!("the fake says {kind}") }
    }

    /// The session is missing, expired or terminated.
    #[must_use]
    pub fn not_authenticated() -> Self {
        Self::new("NotAuthenticated").reference("object", "Folder", "group-d1").field("privilegeId", "System.View")
    }

    /// The account may not read this object.
    #[must_use]
    pub fn no_permission(kind: &str, id: &str) -> Self {
        Self::new("NoPermission").reference("object", kind, id).field("privilegeId", "System.Read")
    }

    /// The account may not read this object, in the form of vCenter 8.0 and later.
    #[must_use]
    pub fn missing_privileges(kind: &str, id: &str, privileges: &[&str]) -> Self {
        let mut fault = Self::new("NoPermission");
        let entity = Ref::new(kind, id).element("entity");
        let ids: String = privileges
            .iter()
            .map(|id| format!("<privilegeIds xsi:type=\"xsd:string\">{}</privilegeIds>", escape(id)))
            .collect();
        let kind = "NoPermissionEntityPrivileges";
        fault.fields = format!("<missingPrivileges xsi:type=\"{kind}\">{entity}{ids}</missingPrivileges>");
        fault
    }

    /// The object does not exist in the server.
    #[must_use]
    pub fn managed_object_not_found(kind: &str, id: &str) -> Self {
        Self::new("ManagedObjectNotFound").reference("obj", kind, id)
    }

    /// Adds a text field.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push_str(&format!("<{name} xsi:type=\"xsd:string\">{}</{name}>", escape(value)));
        self
    }

    /// Adds a field with a reference to an object.
    #[must_use]
    pub fn reference(mut self, name: &str, kind: &str, id: &str) -> Self {
        self.fields.push_str(&Ref::new(kind, id).element(name));
        self
    }

    /// Returns the fault as `soapenv:Fault`, the content of the body.
    pub(super) fn soap(&self) -> String {
        let Self { kind, fields, text } = self;
        format!(
            "<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>{}</faultstring><detail>\
             <{kind}Fault xmlns=\"urn:vim25\" xsi:type=\"{kind}\">{fields}</{kind}Fault></detail></soapenv:Fault>",
            escape(text)
        )
    }

    /// Returns the fault as `LocalizedMethodFault`, for a property.
    pub(super) fn localized(&self) -> String {
        let Self { kind, fields, text } = self;
        format!(
            "<fault><fault xsi:type=\"{kind}\">{fields}</fault><localizedMessage>{}</localizedMessage></fault>",
            escape(text)
        )
    }
}

/// A fault of a call.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// A SOAP fault, with HTTP status 500. The call has no effect.
    Fault(Fault),
    /// An answer with this status, media type and body. The call has no effect.
    Status(u16, &'static str, String),
    /// No answer. The call has no effect.
    Hang,
    /// The connection is closed without a byte. The call has no effect.
    Drop,
    /// The call takes effect, but its answer is lost: the connection is closed without a byte.
    Lose,
    /// The call takes effect. Only this many bytes of the answer's body are sent, then the connection is closed.
    Cut(usize),
    /// The call takes effect. Its answer is sent after this time.
    Late(Duration),
    /// The call takes effect. The body of the answer is sent slowly, with this time between two bytes.
    Slow(Duration),
    /// The call takes effect. The body of its answer is rewritten before it is sent.
    Rewrite(fn(&str) -> String),
}

impl Trouble {
    /// 503 with a proxy's page.
    #[must_use]
    pub fn unavailable() -> Self {
        Trouble::Status(503, "text/html", "<html><body><h1>503 Service Unavailable<br>".to_owned())
    }

    /// 200 with a page instead of an answer, as login portals do.
    #[must_use]
    pub fn portal() -> Self {
        Trouble::Status(200, "text/html", "<html><head><title>Sign in</title></head><body>Hello</body></html>".into())
    }

    /// 200 with an empty body.
    #[must_use]
    pub fn empty() -> Self {
        Trouble::Status(200, "text/xml", String::new())
    }

    /// The answer of a wait without any update, as a complete and valid answer.
    #[must_use]
    pub fn nothing_yet() -> Self {
        let body = "<WaitForUpdatesExResponse xmlns=\"urn:vim25\"></WaitForUpdatesExResponse>";
        Trouble::Status(200, "text/xml", super::soap::envelope(body))
    }

    /// An error of REST, such as `unauthenticated`, with a message id.
    #[must_use]
    pub fn rest(status: u16, kind: &str, message_id: &str) -> Self {
        let body = serde_json::json!({
            "type": format!("com.vmware.vapi.std.errors.{kind}"),
            "value": {"messages": [{"id": message_id, "default_message": format!("the fake says {kind}"), "args": []}]},
        });
        Trouble::Status(status, "application/json", body.to_string())
    }

    /// Returns true if the fault affects the answer and not the call.
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Trouble::Lose | Trouble::Cut(_) | Trouble::Late(_) | Trouble::Slow(_) | Trouble::Rewrite(_))
    }
}
