//! Pure: messages of a server. Known phrases, paths and addresses stay recognizable. The text between them becomes a
//! token.

use super::tokens::Tokens;
use super::value;
use super::words::{self, vim};

/// Phrases of messages, from the vendors' documentation and from sources of other clients. The first match counts.
const PHRASES: [&str; 58] = [
    // NSX.
    "The requested object : ",
    "could not be found. Object identifiers are case sensitive.",
    "The object path=[",
    "] cannot be deleted as either it has children or it is being referenced by other objects path=[",
    "The path=[",
    "] is invalid",
    "] does not exist",
    "The credentials were incorrect or the account specified has been locked.",
    "The XSRF token or the session is invalid.",
    "User is not authorized to perform this operation on the application. Please contact the system administrator to get \
     access.",
    "The requested operation is not allowed by the licenses of this NSX deployment.",
    "Some appliance components are not functioning properly.",
    "The server is starting and cannot process requests yet.",
    "Request method is not supported",
    "Principal '",
    "' attempts to delete or modify an object ",
    " it doesn't own. (createUser=",
    ", allowOverwrite=null)",
    ", allowOverwrite=false)",
    "is marked for deletion. Wait for the purge or use another id.",
    "is marked for deletion",
    "Field level validation errors: {",
    "Json parse error: Unrecognized field \"",
    "is not of the type or range of the field",
    ": is required",
    "was modified by somebody else: its revision is ",
    "The object ",
    "The path ",
    "Client exceeded request rate limit of ",
    "Client exceeded concurrent requests of ",
    "The system exceeded ",
    " concurrent requests.",
    " requests per second.",
    "The session has expired.",
    "The token is invalid or has expired.",
    "The client certificate is not trusted.",
    "The request has no credentials.",
    "the IP address ",
    " and port are in use by ",
    "has no edge cluster",
    "the gateway ",
    // vCenter.
    "VMware vCenter Server ",
    " build-",
    "Cannot complete login due to an incorrect user name or password.",
    "The session is not authenticated.",
    "The object '",
    "The object has already been deleted or has not been completely created",
    "' has already been deleted or has not been completely created",
    "has already been deleted or has not been completely created",
    "Permission to perform this operation was denied.",
    "The task was canceled by a user.",
    "The request was canceled.",
    "A general system error occurred: ",
    "A specified parameter was not correct: ",
    "The operation is not supported on the object.",
    "The password of the user has expired.",
    "managed object not found: ",
    "property collector",
];

/// Replaces a message: phrases stay, the rest becomes tokens. `own` is the path of the requested object.
pub(super) fn message(tokens: &mut Tokens, text: &str, own: Option<&str>) -> String {
    let mut parts = Parts { tokens, redacted: String::new(), unknown: String::new() };
    let (mut rest, mut before) = (text, ' ');
    while let Some(next) = rest.chars().next() {
        let begins = !before.is_alphanumeric() || !next.is_alphanumeric();
        let taken = known(rest, own).filter(|_| begins);
        let length = match taken {
            Some(Known::Phrase(phrase)) => parts.known(phrase.len(), phrase.to_owned()),
            Some(Known::Path(path)) => {
                let redacted = value::path(parts.tokens, path);
                parts.known(path.len(), redacted)
            }
            None if is_end(next) => parts.between(next),
            None => {
                let end = rest.find(is_end).unwrap_or(rest.len());
                parts.word(rest.get(..end).unwrap_or(rest))
            }
        };
        before = rest.get(..length).and_then(|taken| taken.chars().last()).unwrap_or(' ');
        rest = rest.get(length..).unwrap_or_default();
    }
    parts.finish()
}

enum Known<'a> {
    Phrase(&'static str),
    Path(&'a str),
}

/// Returns the known part at the beginning of the text.
fn known<'a>(rest: &str, own: Option<&'a str>) -> Option<Known<'a>> {
    let ends = |length: usize| {
        let mut around = rest.get(length..).unwrap_or_default().chars();
        let last = rest.get(..length).and_then(|start| start.chars().last());
        !around.next().is_some_and(char::is_alphanumeric) || !last.is_some_and(char::is_alphanumeric)
    };
    let path = own.filter(|path| value::is_path(path) && rest.starts_with(path) && ends(path.len()));
    if let Some(path) = path {
        return Some(Known::Path(path));
    }
    let phrase = PHRASES.into_iter().find(|phrase| rest.starts_with(phrase) && ends(phrase.len()));
    phrase.map(Known::Phrase)
}

fn is_end(character: char) -> bool {
    character.is_whitespace() || ",;'\"[](){}=".contains(character)
}

/// Texts before a number that is a count. Any other number can be a name or an id.
const COUNTED: &[&str] =
    &["The system exceeded ", "its revision is ", "request rate limit of ", "concurrent requests of "];

struct Parts<'t> {
    tokens: &'t mut Tokens,
    redacted: String,
    /// Unknown text since the last known part, with the characters between the words.
    unknown: String,
}

impl Parts<'_> {
    fn known(&mut self, length: usize, redacted: String) -> usize {
        self.flush();
        self.redacted.push_str(&redacted);
        length
    }

    /// Handles a character between words.
    fn between(&mut self, character: char) -> usize {
        self.unknown.push(character);
        character.len_utf8()
    }

    fn word(&mut self, word: &str) -> usize {
        let trimmed = word.trim_end_matches(['.', ':']);
        match recognized(self.tokens, trimmed) {
            Some(redacted) => {
                let length = self.known(trimmed.len(), redacted);
                self.unknown.push_str(word.get(length..).unwrap_or_default());
            }
            None => self.unknown.push_str(word),
        }
        word.len()
    }

    /// Writes the token of the unknown text. Characters between words stay at both ends. A number that is a count
    /// stays, and so does the version after the name of the product.
    fn flush(&mut self) {
        let unknown = std::mem::take(&mut self.unknown);
        let is_between = |character: char| is_end(character) || matches!(character, '.' | ':');
        let own = unknown.trim_matches(is_between);
        if own.is_empty() {
            self.redacted.push_str(&unknown);
            return;
        }
        let start = unknown.find(own).unwrap_or_default();
        self.redacted.push_str(unknown.get(..start).unwrap_or_default());
        let is_of_product = ["VMware vCenter Server ", " build-"].iter().any(|end| self.redacted.ends_with(end));
        let is_counted = COUNTED.iter().any(|end| self.redacted.ends_with(end));
        let stays = (is_counted && value::is_small(own)) || (is_of_product && value::is_version(own));
        let redacted = if stays { own.to_owned() } else { self.tokens.text(own) };
        self.redacted.push_str(&redacted);
        self.redacted.push_str(unknown.get(start + own.len()..).unwrap_or_default());
    }

    fn finish(mut self) -> String {
        self.flush();
        self.redacted
    }
}

/// Returns the replacement of a word that is recognized by its form.
fn recognized(tokens: &mut Tokens, word: &str) -> Option<String> {
    if words::is_own(word) {
        return Some(word.to_owned());
    }
    if value::is_path(word) {
        return Some(value::path(tokens, word));
    }
    let managed = word.strip_prefix("vim.").unwrap_or(word).split_once(':').filter(|(class, _)| vim::is_class(class));
    if let Some((class, id)) = managed {
        let prefix = if word.starts_with("vim.") { "vim." } else { "" };
        return Some(format!("{prefix}{class}:{}", value::id(tokens, id)));
    }
    value::shaped(tokens, word)
}

#[cfg(test)]
mod tests {
    use super::{Tokens, message};

    #[test]
    fn a_number_that_counts_nothing_can_be_a_name() {
        for text in [
            "Principal '123456' attempts to delete or modify an object /infra/lb-pools/a it doesn't own. (createUser=4711)",
            "The object 4711",
            "123456",
            "no answer from 10.0.0.7, 4711",
        ] {
            let redacted = message(&mut Tokens::default(), text, None);
            assert!(!redacted.contains("123456") && !redacted.contains("4711"), "{text}: {redacted}");
        }
    }

    #[test]
    fn known_phrases_stay_and_names_do_not() {
        for (text, expected) in [
            (
                "The requested object : /infra/lb-pools/secret could not be found. Object identifiers are case sensitive.",
                "The requested object : /infra/lb-pools/id-1 could not be found. Object identifiers are case sensitive.",
            ),
            (
                "The object path=[/infra/lb-pools/a] cannot be deleted as either it has children or it is being referenced by \
                 other objects path=[/infra/lb-virtual-servers/b, /infra/lb-virtual-servers/c].",
                "The object path=[/infra/lb-pools/id-1] cannot be deleted as either it has children or it is being referenced \
                 by other objects path=[/infra/lb-virtual-servers/id-2, /infra/lb-virtual-servers/id-3].",
            ),
            (
                "Principal 'admin@corp' attempts to delete or modify an object /infra/lb-pools/a it doesn't own. \
                 (createUser=bob, allowOverwrite=null)",
                "Principal 'text-1' attempts to delete or modify an object /infra/lb-pools/id-1 it doesn't own. \
                 (createUser=text-2, allowOverwrite=null)",
            ),
            (
                "The object 'vim.VirtualMachine:vm-42' has already been deleted or has not been completely created",
                "The object 'vim.VirtualMachine:vm-1' has already been deleted or has not been completely created",
            ),
            ("VMware vCenter Server 8.0.3 build-24022515", "VMware vCenter Server 8.0.3 build-24022515"),
            ("Ann of VMware vCenter Server 8.0.3", "text-1 VMware vCenter Server 8.0.3"),
            ("web 42 of the shop cannot be found", "text-1"),
            ("Client exceeded request rate limit of 100 per second.", "Client exceeded request rate limit of text-1."),
            ("The system exceeded 40 concurrent requests.", "The system exceeded 40 concurrent requests."),
            ("no answer from 10.0.0.7, which is web", "text-1 192.0.2.1, text-2"),
            ("xThe session has expired.", "text-1."),
            ("", ""),
        ] {
            assert_eq!(message(&mut Tokens::default(), text, None), expected, "{text}");
        }
    }

    #[test]
    fn the_path_of_the_request_is_found_also_where_its_id_has_a_space() {
        let own = "/infra/lb-pools/the secret";
        let text = format!("The requested object : {own} could not be found. Object identifiers are case sensitive.");
        let expected =
            "The requested object : /infra/lb-pools/id-1 could not be found. Object identifiers are case sensitive.";
        assert_eq!(message(&mut Tokens::default(), &text, Some(own)), expected);
        assert!(!message(&mut Tokens::default(), &text, None).contains("secret"));
    }
}
