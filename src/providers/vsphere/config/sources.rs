//! Pure: the source of an entry's user and password.
//!
//! Mirrors `SecretRef`, as set by `validateConfig` and `FromEnv` and interpreted by `NewConnectionManager`.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::Credentials;
use super::fields::{RawFile, RawSection};
use super::problems::ProblemReport;
use crate::providers::vsphere::login::credentials::source::SourceLocation;

/// The directory that is used by default, if it exists.
pub const DEFAULT_DIRECTORY: &str = "/etc/cloud/secrets";

/// Place of the definition of an entry. The place decides which values the entry inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryOrigin {
    /// In its own section or map entry.
    InFile,
    /// In `server` of Global.
    InGlobal,
    /// In an environment variable.
    ByVariable,
}

/// Credentials that entries inherit and share.
pub(super) struct Sources {
    global: UserAndPassword,
    variables: UserAndPassword,
    /// Whether `Global` in the file names a complete Secret or a directory, and not both. Entries then need no user and
    /// password.
    is_stored: bool,
    /// Whether `Global` in the file names both a Secret and a directory. An entry in the file without user and password
    /// then uses neither.
    is_ambiguous: bool,
    /// Reason why the source that `Global` names in the file is unusable.
    error: Option<String>,
    /// The Secret or directory that entries share: from variables, from `Global`, or the default directory.
    shared_credentials: Option<Credentials>,
    /// Whether an entry tried to use the user and password of the variables.
    variables_consulted: bool,
}

#[derive(Clone)]
struct UserAndPassword {
    user: Option<String>,
    password: Option<SecretString>,
}

impl UserAndPassword {
    fn of(section: &RawSection) -> Self {
        Self {
            user: section.text("user").map(str::to_owned),
            password: section.text("password").map(SecretString::from),
        }
    }

    fn or(&self, other: &Self) -> Self {
        let Self { user, password } = other.clone();
        Self { user: self.user.clone().or(user), password: self.password.clone().or(password) }
    }

    fn is_empty(&self) -> bool {
        self.user.is_none() && self.password.is_none()
    }

    fn inline(&self) -> Option<Credentials> {
        let (user, password) = (self.user.clone()?, self.password.clone()?);
        Some(Credentials::Inline { user, password })
    }
}

impl Sources {
    pub fn new(
        file: &RawFile,
        environment: &RawFile,
        is_directory: &dyn Fn(&Path) -> bool,
        report: &mut ProblemReport,
    ) -> Self {
        let (global, variables) = (&file.global, &environment.global);
        let is_named = global.text("secret-name").is_some() || global.text("secret-namespace").is_some();
        let has_directory = global.text("secrets-directory").is_some();
        let is_stored = if has_directory { !is_named } else { secret(&[global]).is_some() };
        let shared = shared(global, variables, is_directory, report);
        Self {
            global: UserAndPassword::of(global),
            variables: UserAndPassword::of(variables),
            is_stored,
            is_ambiguous: has_directory && is_named,
            error: match has_directory && is_named {
                true => Some(format!(
                    "{} and {} in the section Global exclude each other: remove one of them",
                    global.shown_key("secrets-directory"),
                    global.shown_key("secret-name"),
                )),
                false => half_secret(global).map(|missing| format!("{missing} in the section Global")),
            },
            shared_credentials: shared,
            variables_consulted: false,
        }
    }

    /// Returns the credentials of an entry and their fallback. A complete pair of user and password comes first. Next
    /// comes the Secret of the entry or, without a Secret of the entry, the Secret or directory of `Global`.
    ///
    /// An entry of a variable takes a missing user or password from the variables, then from `Global`. An entry in the
    /// file takes them from `Global` only if neither the entry nor `Global` names a Secret or directory in the file.
    ///
    /// As in the Go program, `VSPHERE_USER` and `VSPHERE_PASSWORD` never change the credentials of an entry in the
    /// file. If an entry in the file has no credentials, the Go program refuses to start; this program uses the
    /// variables and the shared Secret or directory.
    pub fn credentials(
        &mut self,
        defined: EntryOrigin,
        section: &RawSection,
        report: &mut ProblemReport,
    ) -> (Credentials, Option<Credentials>) {
        let own = UserAndPassword::of(section);
        if defined != EntryOrigin::InGlobal {
            warn_of_half_secret(section, report);
        }
        if defined == EntryOrigin::ByVariable {
            self.variables_consulted = true;
            let pair = own.or(&self.variables).or(&self.global);
            return self.pick(section, &pair, secret(&[section]).or_else(|| self.shared_credentials.clone()), report);
        }
        if let Some(secret) = secret(&[section]) {
            return self.pick(section, &own, Some(secret), report);
        }
        if self.is_stored {
            return self.pick(section, &own, self.shared_credentials.clone(), report);
        }
        let pair = own.or(&self.global);
        match pair.inline() {
            Some(inline) => (inline, self.shared_credentials.clone().filter(|_| defined == EntryOrigin::InGlobal)),
            None => {
                self.variables_consulted = true;
                let shared = self.shared_credentials.clone().filter(|_| !self.is_ambiguous);
                self.pick(section, &pair.or(&self.variables), shared, report)
            }
        }
    }

    /// Warns of user and password in variables, if no vCenter uses them.
    pub fn warn_of_unused(&self, variables: &RawSection, report: &mut ProblemReport) {
        for key in
            ["user", "password"].into_iter().filter(|key| !self.variables_consulted && variables.text(key).is_some())
        {
            let odd = "no effect: every vCenter has a user and a password, or a secret, in the file";
            report.warn_at(variables, Some(key), odd);
        }
    }

    fn pick(
        &self,
        section: &RawSection,
        pair: &UserAndPassword,
        stored: Option<Credentials>,
        report: &mut ProblemReport,
    ) -> (Credentials, Option<Credentials>) {
        if let Some(inline) = pair.inline() {
            return (inline, stored);
        }
        if let Some(stored) = stored {
            if let Some(given) = ["user", "password"].into_iter().find(|name| section.text(name).is_some()) {
                let odd = "ignored: user and password belong together, and a secret is used";
                report.warn_at(section, Some(given), odd);
            }
            return (stored, None);
        }
        let of_global = || self.error.clone();
        let problem = of_global().filter(|_| self.is_ambiguous).or_else(|| half_secret(section)).or_else(of_global);
        if let Some(problem) = problem.as_ref().filter(|_| report.is_readable && pair.is_empty()) {
            report.error_at(section, None, format!("no user and password: {problem}"));
            return (Credentials::Inline { user: String::new(), password: SecretString::from("") }, None);
        }
        let besides = problem.map(|trouble| format!(": {trouble}")).unwrap_or_default();
        for (name, is_missing) in [("user", pair.user.is_none()), ("password", pair.password.is_none())] {
            if is_missing && report.is_readable && !section.has_error_at(name) {
                let expected =
                    format!("missing: expected a {name} here or in the section Global, or a secret{besides}");
                report.error_at(section, Some(name), expected);
            }
        }
        (Credentials::Inline { user: String::new(), password: SecretString::from("") }, None)
    }
}

/// Returns the Secret. Name and namespace each come from the first section that has the key.
fn secret(sections: &[&RawSection]) -> Option<Credentials> {
    let first = |key: &str| sections.iter().find_map(|section| section.text(key)).map(str::to_owned);
    Some(Credentials::Stored(SourceLocation::Secret {
        namespace: first("secret-namespace")?,
        name: first("secret-name")?,
    }))
}

/// Returns a message if only one of name and namespace is given.
fn half_secret(section: &RawSection) -> Option<String> {
    let (given, missing) = match (section.text("secret-name"), section.text("secret-namespace")) {
        (Some(_), None) => ("secret-name", "secret-namespace"),
        (None, Some(_)) => ("secret-namespace", "secret-name"),
        _ => return None,
    };
    Some(format!("{} needs {}", section.shown_key(given), section.shown_key(missing)))
}

pub(super) fn warn_of_half_secret(section: &RawSection, report: &mut ProblemReport) {
    let given: Vec<_> =
        ["secret-name", "secret-namespace"].into_iter().filter(|key| section.text(key).is_some()).collect();
    if let [only] = given.as_slice() {
        report.warn_at(section, Some(only), "ignored: name and namespace of the secret belong together");
    }
}

/// Returns the Secret or directory that entries share. As in the Go program, a configured directory that exists takes
/// precedence over a Secret. The default directory does not, because it is not configured.
fn shared(
    global: &RawSection,
    variables: &RawSection,
    is_directory: &dyn Fn(&Path) -> bool,
    report: &mut ProblemReport,
) -> Option<Credentials> {
    let secret = secret(&[variables, global]);
    if secret.is_none() {
        warn_of_half_secret(global, report);
        warn_of_half_secret(variables, report);
    }
    let chosen = [variables, global].into_iter().find(|section| section.text("secrets-directory").is_some());
    let directory = chosen.and_then(|section| Some((section, PathBuf::from(section.text("secrets-directory")?))));
    let at = |path: &Path| Some(Credentials::Stored(SourceLocation::Directory(path.to_path_buf())));
    let default = Path::new(DEFAULT_DIRECTORY);
    match (secret, directory) {
        (Some(secret), Some((section, path))) => {
            let is_used = is_directory(&path);
            let odd = if is_used {
                "a secret is named as well: where both could serve, the directory does"
            } else {
                "ignored: it is no directory, and a secret is named as well"
            };
            report.warn_at(section, Some("secrets-directory"), odd);
            if is_used { at(&path) } else { Some(secret) }
        }
        (Some(secret), None) => {
            if is_directory(default) {
                let odd = "the secret is used, although the directory /etc/cloud/secrets exists, which the Go program prefers";
                let section = if variables.text("secret-name").is_some() { variables } else { global };
                report.warn_at(section, Some("secret-name"), odd);
            }
            Some(secret)
        }
        (None, Some((_, path))) => at(&path),
        (None, None) => at(default).filter(|_| is_directory(default)),
    }
}
