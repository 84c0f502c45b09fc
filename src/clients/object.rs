//! Managed object references, which the SOAP and REST protocols of vCenter use.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A managed object reference: the concrete class, as the server spells it, and the id, which is unique within one
/// vCenter.
///
/// Clones share one text to save memory, because references are stored in several places.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "RestObject", into = "RestObject")]
pub struct MoRef {
    /// Class and id, such as `HostSystem:host-21`.
    text: Arc<str>,
    /// Length of the class at the start of `text`, in bytes.
    kind_end: u32,
}

impl MoRef {
    /// Builds a reference from a class and an id.
    pub fn new(kind: impl AsRef<str>, id: impl AsRef<str>) -> Self {
        let (kind, id) = (kind.as_ref(), id.as_ref());
        Self { text: format!("{kind}:{id}").into(), kind_end: u32::try_from(kind.len()).unwrap_or(u32::MAX) }
    }

    /// Returns the concrete class, for example `VirtualMachine`. The class may be unknown to this program.
    pub fn kind(&self) -> &str {
        self.text.get(..self.kind_end as usize).unwrap_or_default()
    }

    /// Returns the id without the class, for example `vm-42`.
    pub fn id(&self) -> &str {
        self.text.get(self.kind_end as usize + 1..).unwrap_or_default()
    }
}

/// A managed object reference as the REST API writes it: the class is in `type`.
#[derive(Serialize, Deserialize)]
struct RestObject {
    id: String,
    r#type: String,
}

impl From<MoRef> for RestObject {
    fn from(object: MoRef) -> Self {
        Self { id: object.id().to_owned(), r#type: object.kind().to_owned() }
    }
}

impl From<RestObject> for MoRef {
    fn from(object: RestObject) -> Self {
        MoRef::new(object.r#type, object.id)
    }
}

impl fmt::Display for MoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for MoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MoRef({} {})", self.kind(), self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_and_id_are_as_they_were_given() {
        let known = MoRef::new("HostSystem", "host-21");
        for (kind, id) in [("HostSystem", "host-21"), ("ns:Höst", "a:b"), ("", ":"), ("Folder", "")] {
            let object = MoRef::new(kind, id);
            assert_eq!((object.kind(), object.id()), (kind, id));
            assert_eq!(object.to_string(), format!("{kind}:{id}"));
            assert_eq!(object == known, kind == "HostSystem");
        }
        assert_ne!(MoRef::new("a", "b:c"), MoRef::new("a:b", "c"), "though they are the same text");
    }
}
