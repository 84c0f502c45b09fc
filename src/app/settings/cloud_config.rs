//! `vsphere.conf` and the files it names, read and checked together with our flags about vCenter.

use super::{Check, Mistake};
use std::path::PathBuf;
use std::time::Duration;

/// What the vSphere provider is built from.
#[derive(Debug)]
pub struct Vsphere {
    /// Where `vsphere.conf` was read.
    pub path: PathBuf,
    /// Pause between two looks at the tags.
    pub tag_poll_interval: Duration,
    /// Whether a VM found by its name alone is taken even if its UUID contradicts the node's.
    pub allows_name_match: bool,
}

impl Check<'_> {
    /// Reads the file of `--cloud-config` and what it names, and checks our flags about vCenter.
    pub(super) fn vsphere(&mut self) -> Option<Vsphere> {
        let tag_poll_interval = self.pause("--tag-poll-interval", &self.options.tag_poll_interval);
        let allows_name_match = self.boolean("--allow-name-match", &self.options.allow_name_match);
        let path = self.options.cloud_config.clone().filter(|path| !path.is_empty());
        let Some(path) = path.map(PathBuf::from) else {
            let why = "it is needed; expected the path of vsphere.conf".to_owned();
            self.mistakes.push(Mistake { place: "--cloud-config".to_owned(), why });
            return None;
        };
        let text = self.text(&path);
        text?;
        Some(Vsphere { path, tag_poll_interval: tag_poll_interval?, allows_name_match: allows_name_match? })
    }

    fn text(&mut self, path: &std::path::Path) -> Option<String> {
        let shown = path.display().to_string();
        let bytes = match (self.read_file)(path) {
            Ok(bytes) => bytes,
            Err(error) => return self.wrong("--cloud-config", &shown, format!("cannot be read: {error}")),
        };
        match String::from_utf8(bytes) {
            Ok(text) if text.trim().is_empty() => self.wrong("--cloud-config", &shown, "the file is empty"),
            Ok(text) => Some(text),
            Err(_) => self.wrong("--cloud-config", &shown, "the file is not text in UTF-8"),
        }
    }
}
