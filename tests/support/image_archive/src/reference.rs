//! Pure: an image name with registry and tag.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

/// A complete image name, such as `docker.io/library/alpine:3`.
#[derive(Debug, PartialEq)]
pub struct Reference {
    name: String,
    tag: String,
}

/// `domainAndPort`, `remoteName` and `tag` from `regexp.go` of `distribution/reference`.
static GRAMMAR: LazyLock<Regex> = LazyLock::new(|| {
    let label = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let domain = format!(r"(?:{label}(?:\.{label})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let component = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    let tag = "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}";
    let whole = format!("^{domain}/{component}(?:/{component})*:{tag}$");
    Regex::new(&whole).expect("the grammar is constant, and a test uses it")
});

/// Upper limits of registries and of `distribution/reference`, in characters.
const LONGEST_NAME: usize = 255;

impl Reference {
    /// Reads a name and completes it as Docker, containerd and the kubelet do (`ParseNormalizedNamed` of
    /// `distribution/reference`), except for the tag: Kubernetes pulls `latest` again at each start of a pod, which
    /// needs a registry.
    ///
    /// # Errors
    ///
    /// A sentence, if the text is not a name or contains a digest.
    pub fn parse(text: &str, default_tag: &str) -> Result<Self, String> {
        if text.contains('@') {
            return Err(format!(
                "{text:?} has a digest, which follows from the content of the image: expected NAME:TAG"
            ));
        }
        let is_registry =
            |first: &str| first == "localhost" || first.contains(['.', ':']) || first != first.to_lowercase();
        let (domain, rest) = match text.split_once('/') {
            Some(("index.docker.io", rest)) => ("docker.io", rest),
            Some((first, rest)) if is_registry(first) => (first, rest),
            _ => ("docker.io", text),
        };
        let (path, tag) = rest.split_once(':').unwrap_or((rest, default_tag));
        let library = if domain == "docker.io" && !path.contains('/') { "library/" } else { "" };
        let reference = Self { name: format!("{domain}/{library}{path}"), tag: tag.to_owned() };
        if reference.name.len() > LONGEST_NAME || !GRAMMAR.is_match(&reference.to_string()) {
            return Err(format!(
                "{text:?} is no name of an image: expected NAME:TAG, with the name in lower case, such as \
                 registry.example.com/vsphere-cloud-controller-manager:v0.1.0"
            ));
        }
        Ok(reference)
    }

    /// Returns the tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.name, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed() {
        let table = [
            ("ccm", "docker.io/library/ccm:v1"),
            ("ccm:v2", "docker.io/library/ccm:v2"),
            ("team/ccm:v2", "docker.io/team/ccm:v2"),
            ("docker.io/ccm", "docker.io/library/ccm:v1"),
            ("index.docker.io/team/ccm", "docker.io/team/ccm:v1"),
            ("registry.example.com/ccm:V_2.0-rc.1", "registry.example.com/ccm:V_2.0-rc.1"),
            ("registry.example.com/a/b__c/d--e.f", "registry.example.com/a/b__c/d--e.f:v1"),
            ("registry.example.com:v1", "docker.io/library/registry.example.com:v1"),
            ("registry:5000/ccm", "registry:5000/ccm:v1"),
            ("10.0.0.1:5000/a/ccm:v2", "10.0.0.1:5000/a/ccm:v2"),
            ("[2001:db8::1]:5000/ccm:v2", "[2001:db8::1]:5000/ccm:v2"),
            ("localhost/ccm", "localhost/ccm:v1"),
            ("Registry/ccm", "Registry/ccm:v1"),
        ];
        for (text, expected) in table {
            let reference = Reference::parse(text, "v1").map(|reference| reference.to_string());
            assert_eq!(reference.as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(Reference::parse("registry:5000/ccm:v2", "v1").unwrap().tag(), "v2");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(128);
        let path = format!("registry.example.com/{}", "a".repeat(LONGEST_NAME));
        let tag = format!("ccm:{long}x");
        let table = [
            "",
            ":v1",
            "/ccm",
            "ccm:",
            "ccm:v 1",
            "ccm:-v1",
            "ccm:v1:v2",
            "Ccm",
            "registry.example.com/Ccm",
            "a//b",
            "a/",
            "_a",
            "a_",
            "a..b",
            "a___b",
            "c cm",
            "c'cm",
            "$(ccm)",
            "ccm\n",
            "-r.example.com/ccm",
            "registry:port/ccm",
            "https://registry.example.com/ccm",
            "ccm:v1/x",
            &path,
            &tag,
        ];
        for text in table {
            let refused = Reference::parse(text, "v1").unwrap_err();
            assert!(refused.contains("is no name of an image: expected NAME:TAG"), "{text}: {refused}");
        }
        let digest = format!("ccm@sha256:{}", "0".repeat(64));
        assert!(Reference::parse(&digest, "v1").unwrap_err().contains("has a digest"));
        assert!(Reference::parse(&format!("ccm:{long}"), "v1").is_ok(), "the longest tag");
    }
}
