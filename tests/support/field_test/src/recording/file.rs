//! Pure: a recording as a file of consecutive JSON objects, as `jq` reads them. A file whose end is missing can be read
//! up to there.

use std::collections::BTreeMap;

use ccm::clients::vim;
use serde::{Deserialize, Serialize};
use serde_json::Serializer;
use serde_json::ser::PrettyFormatter;

use super::exchange::{Answer, Request};

/// Version of the file format.
const VERSION: u32 = 1;

/// Values that stay unchanged, for the manifest.
const STAYS: [&str; 7] = [
    "methods and known segments of paths, names of known parameters and headers, status codes, media types",
    "names of known fields and elements, known classes, types, properties, states, privileges and codes of the schema",
    "true, false and null; numbers of at most six digits where the schema has a number, which include ports, counts and \
     revisions",
    "name, version and build of the product",
    "known phrases of messages",
    "loopback and unspecified addresses, lengths of prefixes",
    "ids and cookies that this program sends as examples of what does not exist",
];

/// Values that are replaced and their replacements, for the manifest.
const IS_REPLACED: [&str; 9] = [
    "users and passwords of logins, cookies, tokens and other credentials: removed",
    "names, descriptions, tags and every other text: text-N, one token for the whole text",
    "ids: id-N, or with the prefix by which vCenter counts, such as vm-N",
    "UUIDs: 00000000-0000-4000-8000-N, with the third group 0040 in the other byte order",
    "addresses: 192.0.2.N, then other ranges for documentation and for measurements; 2001:db8::N; link-local ones stay \
     link-local",
    "times: 2020-01-01T00:00:00Z, or its milliseconds",
    "numbers of more than six digits: a number from 1000001 on",
    "fields, elements, parameters and types that are in no list: unknown-N",
    "other attributes, other headers and comments: left out",
];

/// An object of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    /// The first object: the description of the file.
    Manifest(Manifest),
    /// A server of the run.
    Server(ServerEntry),
    /// A request and its answer.
    Exchange(Box<ExchangeEntry>),
    /// The outcomes of the beliefs about a server.
    Outcomes(Outcomes),
    /// The last object. It is missing if the program was killed.
    End(End),
}

/// The description of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the file format.
    pub version: u32,
    /// Name of the program that wrote it.
    pub program: String,
    /// Values that stay unchanged.
    pub stays: Vec<String>,
    /// Values that are replaced. One value has one token in the whole file.
    pub is_replaced: Vec<String>,
}

/// The product of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Product {
    /// A vCenter.
    Vcenter,
    /// An NSX Manager.
    Nsx,
}

/// A server of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerEntry {
    /// Its title in the table.
    pub title: String,
    /// Its product.
    pub product: Product,
    /// Kind of login: `password`, `remote`, `certificate`, or `none`.
    pub login: String,
    /// Prefix of every path of NSX.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The tier-1 gateway of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The load balancer service of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lb_service: Option<String>,
}

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExchangeEntry {
    /// Number of the exchange, counted over all servers.
    pub number: usize,
    /// Title of the server.
    pub server: String,
    /// The client's operation name of the call.
    pub operation: String,
    /// Duration in tenths of a second.
    pub tenths: u64,
    /// The request.
    pub request: Request,
    /// The answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Reason why there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The outcomes of the beliefs about a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Title of the server.
    pub server: String,
    /// `holds`, `DIFFERS` or `not tried`, by the ids of the beliefs.
    pub outcomes: BTreeMap<String, String>,
    /// Reason why the test of this server ended early, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
}

/// The end of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Number of recorded exchanges.
    pub exchanges: usize,
    /// Reason why some exchanges were not recorded, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// Number of replaced values of each kind, and number of omissions.
    pub replaced: BTreeMap<String, u32>,
}

impl Manifest {
    /// Makes the manifest of a new file.
    pub(super) fn new() -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            version: VERSION,
            program: vim::user_agent(None),
            stays: owned(&STAYS),
            is_replaced: owned(&IS_REPLACED),
        }
    }
}

impl Entry {
    /// Returns the object as indented lines, with a newline at the end.
    pub(super) fn written(&self) -> String {
        let mut text = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
        // JSON can represent every value of an entry, so this cannot fail.
        let _ = self.serialize(&mut serializer);
        text.push(b'\n');
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// A recording that was read.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The servers of the run.
    pub servers: Vec<ServerEntry>,
    /// All exchanges.
    pub exchanges: Vec<ExchangeEntry>,
    /// The outcomes of the beliefs, by server.
    pub outcomes: Vec<Outcomes>,
    /// The end, if the file has it.
    pub end: Option<End>,
}

impl Recording {
    /// Reads a file. An object that is cut at the end of the file is skipped.
    ///
    /// # Errors
    /// The mistake in the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut recording = Self::default();
        let mut is_first = true;
        for entry in serde_json::Deserializer::from_str(text).into_iter::<Entry>() {
            match (entry, is_first) {
                (Ok(Entry::Manifest(manifest)), true) if manifest.version == VERSION => {}
                (Ok(Entry::Manifest(_)), true) => return Err("it has another version".to_owned()),
                (Err(error), false) if error.is_eof() => break,
                (Err(error), _) => return Err(format!("line {}: it is not of a recording", error.line())),
                (Ok(_), true) | (Ok(Entry::Manifest(_)), false) => {
                    return Err("it does not have one manifest, at its beginning".to_owned());
                }
                (Ok(Entry::Server(server)), false) => recording.servers.push(server),
                (Ok(Entry::Exchange(exchange)), false) => recording.exchanges.push(*exchange),
                (Ok(Entry::Outcomes(outcomes)), false) => recording.outcomes.push(outcomes),
                (Ok(Entry::End(end)), false) => recording.end = Some(end),
            }
            is_first = false;
        }
        match is_first {
            true => Err("it is empty".to_owned()),
            false => Ok(recording),
        }
    }

    /// Returns the outcomes of the beliefs about a server.
    #[must_use]
    pub fn outcomes_of(&self, title: &str) -> Option<&Outcomes> {
        self.outcomes.iter().find(|outcomes| outcomes.server == title)
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Entry, Manifest, Recording};

    #[test]
    fn a_file_without_its_end_is_read_and_another_file_is_not() {
        let manifest = Entry::Manifest(Manifest::new()).written();
        let end = Entry::End(End { exchanges: 0, cut: None, replaced: Default::default() }).written();
        let read = |text: &str| Recording::parse(text).map(|recording| recording.end.is_some());
        assert_eq!(read(&format!("{manifest}{end}")), Ok(true));
        assert_eq!(read(&manifest), Ok(false));
        assert_eq!(read(&format!("{manifest}{}", end.trim_end_matches(['\n', '}']))), Ok(false));
        for other in ["", "{}", "[1]", "secret", &end, &format!("{manifest}{manifest}"), &format!("{manifest}secret")] {
            let error = read(other).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
