//! SOAP faults, with which the server refuses calls. Only the type decides the kind of a fault, because `faultcode` has
//! no information.

use std::fmt;

use super::MoRef;
use super::decoder::{DecodeError, Decoder, StartTag};
use super::value::read_reference;

/// Kinds of faults that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// There is no session, or the session has expired or was terminated.
    NotAuthenticated,
    /// The user lacks a privilege, or has no role anywhere.
    NoPermission,
    /// Wrong user or password, or a locked account.
    InvalidLogin,
    /// The password has expired.
    PasswordExpired,
    /// The object does not exist, or belonged to an earlier session.
    ManagedObjectNotFound,
    /// A property path is unknown to the server.
    InvalidProperty,
    /// A class name is unknown to the server.
    InvalidType,
    /// A parameter is invalid.
    InvalidArgument,
    /// The given version is unknown to the collector.
    InvalidCollectorVersion,
    /// A wait was cancelled, its collector was destroyed, or its session was closed.
    RequestCanceled,
    /// `HostCommunication`, `HostNotReachable`, `HostNotConnected`.
    HostUnreachable,
    /// The server does not have this operation, or only in another form.
    NotSupported,
    /// `InvalidState`, `LimitExceeded` and similar faults: the call is refused for now.
    InvalidState,
    /// `NotFound`.
    NotFound,
    /// `SystemError`, `RuntimeFault`: an error on the server's side.
    SystemError,
    /// Anything else.
    Other,
}

/// All kinds except `Other`, each with a stable word for metrics and Events, and with the fault types of the kind.
const FAMILIES: [(FaultKind, &str, &[&str]); 15] = [
    (FaultKind::NotAuthenticated, "NotAuthenticated", &["NotAuthenticated"]),
    (FaultKind::NoPermission, "NoPermission", &["NoPermission", "RestrictedByAdministrator"]),
    (FaultKind::InvalidLogin, "InvalidLogin", &["InvalidLogin"]),
    (FaultKind::PasswordExpired, "PasswordExpired", &["PasswordExpired"]),
    (FaultKind::ManagedObjectNotFound, "ManagedObjectNotFound", &["ManagedObjectNotFound"]),
    (FaultKind::InvalidProperty, "InvalidProperty", &["InvalidProperty"]),
    (FaultKind::InvalidType, "InvalidType", &["InvalidType"]),
    (FaultKind::InvalidArgument, "InvalidArgument", &["InvalidArgument", "InvalidName", "InvalidLocale"]),
    (FaultKind::InvalidCollectorVersion, "InvalidCollectorVersion", &["InvalidCollectorVersion"]),
    (FaultKind::RequestCanceled, "RequestCanceled", &["RequestCanceled"]),
    (FaultKind::HostUnreachable, "HostUnreachable", &["HostCommunication", "HostNotReachable", "HostNotConnected"]),
    (FaultKind::NotSupported, "NotSupported", &["MethodNotFound", "InvalidRequest", "NotSupported", "NotImplemented"]),
    (FaultKind::InvalidState, "InvalidState", &["InvalidState", "LimitExceeded", "InvalidPowerState"]),
    (FaultKind::NotFound, "NotFound", &["NotFound"]),
    (FaultKind::SystemError, "SystemError", &["SystemError", "RuntimeFault"]),
];

impl FaultKind {
    fn of(name: &str) -> Self {
        FAMILIES.iter().find(|(_, _, types)| types.contains(&name)).map_or(FaultKind::Other, |(kind, ..)| *kind)
    }

    /// Returns a stable word for metrics and Events.
    pub fn as_str(self) -> &'static str {
        FAMILIES.iter().find(|(kind, ..)| *kind == self).map_or("Fault", |(_, word, _)| word)
    }
}

/// One fault: the refusal of a call, or the reason that a property cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The concrete type as sent, for example `NoPermission`.
    pub name: String,
    /// The server's text, possibly empty.
    pub message: String,
    /// The object concerned: `object` of permission faults, `obj` of `ManagedObjectNotFound`.
    pub object: Option<MoRef>,
    /// The missing privileges, for example `System.Read`.
    pub privileges: Vec<String>,
    /// The parameter, property or method concerned, or the reason that the fault gives.
    pub subject: Option<String>,
}

/// Prints the type and the fields first, because the server's text is often empty.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(object) = &self.object {
            write!(f, " on {object}")?;
        }
        if !self.privileges.is_empty() {
            write!(f, " (missing privilege {})", self.privileges.join(", "))?;
        }
        if let Some(subject) = &self.subject {
            write!(f, " ({subject})")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// Maximum length of a server's text, in characters. Longer texts are truncated.
const MAX_TEXT: usize = 500;

impl Fault {
    fn new(name: &str) -> Self {
        let name: String = name.chars().take(80).collect();
        Self {
            kind: FaultKind::of(&name),
            name,
            message: String::new(),
            object: None,
            privileges: Vec::new(),
            subject: None,
        }
    }

    /// Reads the element just entered: a `soapenv:Fault` if `is_soap`, otherwise the `LocalizedMethodFault` of a
    /// property or object. Of several details, the first is used.
    pub(super) fn read(decoder: &mut Decoder<'_>, is_soap: bool) -> Result<Self, DecodeError> {
        let (mut message, mut fault) = (String::new(), None);
        while let Some(part) = decoder.next_child()? {
            match part.name {
                "faultstring" if is_soap => message = one_line(&decoder.text()?),
                "localizedMessage" if !is_soap => message = one_line(&decoder.text()?),
                "detail" if is_soap => {
                    while let Some(detail) = decoder.next_child()? {
                        let read = Self::read_detail(decoder, &detail)?;
                        fault.get_or_insert(read);
                    }
                }
                "fault" if !is_soap => fault = Some(Self::read_detail(decoder, &part)?),
                _ => decoder.skip()?,
            }
        }
        Ok(Self { message, ..fault.unwrap_or_else(|| Fault::new("Fault")) })
    }

    fn read_detail(decoder: &mut Decoder<'_>, start: &StartTag<'_>) -> Result<Self, DecodeError> {
        let by_element = start.name.strip_suffix("Fault").filter(|name| !name.is_empty()).unwrap_or(start.name);
        let mut fault = Fault::new(start.xml_type.as_deref().unwrap_or(by_element));
        while let Some(field) = decoder.next_child()? {
            match (field.name, &field.object_type) {
                ("object" | "obj", Some(_)) => fault.object = Some(read_reference(decoder, &field)?),
                ("privilegeId", _) => fault.add_privilege(decoder.text()?),
                ("missingPrivileges", _) => fault.read_missing_privileges(decoder)?,
                ("name" | "argument" | "invalidProperty" | "reason" | "method", None) => {
                    fault.subject = Some(one_line(&decoder.text()?));
                }
                _ => decoder.skip()?,
            }
        }
        Ok(fault)
    }

    /// Reads `missingPrivileges`, the list of all missing privileges that vCenter 7.0U3 and later send.
    fn read_missing_privileges(&mut self, decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
        while let Some(field) = decoder.next_child()? {
            match (field.name, &field.object_type) {
                ("entity", Some(_)) => {
                    let entity = read_reference(decoder, &field)?;
                    self.object.get_or_insert(entity);
                }
                ("privilegeIds", _) => {
                    let privilege = decoder.text()?;
                    self.add_privilege(privilege);
                }
                _ => decoder.skip()?,
            }
        }
        Ok(())
    }

    fn add_privilege(&mut self, privilege: String) {
        let privilege = one_line(&privilege);
        if !privilege.is_empty() && !self.privileges.contains(&privilege) && self.privileges.len() < 32 {
            self.privileges.push(privilege);
        }
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests;
