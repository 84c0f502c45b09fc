//! Choice of the protocol version.

use super::decoder::{DecodeError, Decoder};

/// The preferred version, which has everything that this program needs. All servers from 6.7 Update 3 to 9.x accept it.
pub(super) const PREFERRED: &str = "6.7.3";

/// Chooses the preferred version if it is offered or if the list is empty; otherwise the highest older version. If all
/// offered versions are newer, chooses the first one, which is the current version of the server.
pub(super) fn choose(offered: &[String]) -> String {
    if offered.is_empty() || offered.iter().any(|version| version == PREFERRED) {
        return PREFERRED.to_owned();
    }
    let limit = parts(PREFERRED);
    let older = offered.iter().filter(|version| parts(version).is_some_and(|parts| Some(parts) <= limit));
    let best = older.max_by_key(|version| parts(version));
    best.or(offered.first()).map_or_else(|| PREFERRED.to_owned(), Clone::clone)
}

/// Parses a version of whole numbers and dots. Returns `None` for other names, which development builds have.
fn parts(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|part| part.parse().ok()).collect()
}

/// Reads the versions that `/sdk/vimServiceVersions.xml` lists for `urn:vim25`, the current version first.
pub(super) fn read_offered(text: &str) -> Result<Vec<String>, DecodeError> {
    let mut decoder = Decoder::new(text);
    decoder.next_child()?.ok_or(DecodeError::Missing("namespaces"))?;
    while let Some(namespace) = decoder.next_child()? {
        if namespace.name != "namespace" {
            decoder.skip()?;
            continue;
        }
        let mut name = String::new();
        let mut current = Vec::new();
        let mut prior = Vec::new();
        while let Some(part) = decoder.next_child()? {
            match part.name {
                "name" => name = decoder.text()?,
                "version" => current.push(decoder.text()?),
                "priorVersions" => {
                    while decoder.next_child()?.is_some() {
                        prior.push(decoder.text()?);
                    }
                }
                _ => decoder.skip()?,
            }
        }
        if name.trim() == "urn:vim25" {
            return Ok(current.into_iter().chain(prior).map(|version| version.trim().to_owned()).collect());
        }
    }
    Err(DecodeError::Missing("urn:vim25"))
}

#[cfg(test)]
mod tests {
    //! Tests with version lists of real servers and of the simulator.

    use super::{choose, read_offered};

    fn owned(versions: &[&str]) -> Vec<String> {
        versions.iter().map(|version| (*version).to_owned()).collect()
    }

    #[test]
    fn the_version_spoken_is_6_7_3_or_the_nearest_older_one() {
        let cases: [(&str, &[&str], &str); 6] = [
            ("8.0U3", &["dev.internal", "8.0.2.0", "7.0.0.2", "6.7.3", "6.7.2", "4.0"], "6.7.3"),
            ("6.7U2", &["6.7.2", "6.7.1", "6.7", "6.5"], "6.7.2"),
            ("simulator", &["6.5", "6.0"], "6.5"),
            ("dropped old ones", &["12.0.0.0", "11.0.0.0"], "12.0.0.0"),
            ("order by number", &["6.7.10", "6.7.2", "6.5"], "6.7.2"),
            ("no list", &[], "6.7.3"),
        ];
        for (name, offered, spoken) in cases {
            assert_eq!(choose(&owned(offered)), spoken, "{name}");
        }
    }

    #[test]
    fn the_list_of_urn_vim25_is_read_with_the_current_version_first() {
        let text = r#"<?xml version="1.0" encoding="UTF-8" ?>
            <namespaces version="1.0">
              <namespace><name>urn:sms</name><version>1.0</version></namespace>
              <namespace>
                <name>urn:vim25</name>
                <version>8.0.3.0</version>
                <priorVersions><version>8.0.2.0</version><version>6.7.3</version></priorVersions>
              </namespace>
            </namespaces>"#;
        assert_eq!(read_offered(text), Ok(owned(&["8.0.3.0", "8.0.2.0", "6.7.3"])));
        assert!(read_offered("<html><body>no</body></html>").is_err());
        assert!(read_offered("").is_err());
    }
}
