//! The pages of the secure port that show what the process was told and what it is.

mod configz;
mod flagz;

use super::settings::Settings;
use crate::runtime::admin::Page;
use std::sync::Arc;

/// All of them. They do not change while the process runs.
pub fn all(settings: &Settings) -> Vec<Page> {
    vec![
        page("/configz", "application/json", configz::text(settings)),
        page("/flagz", "text/plain; charset=utf-8", flagz::text(&settings.options.values)),
    ]
}

fn page(path: &'static str, content_type: &'static str, text: String) -> Page {
    Page { path, content_type, write: Arc::new(move || text.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::settings::tests::settled;

    #[test]
    fn both_pages_are_there_and_hold_no_secret() {
        // The password is in the file of --cloud-config.
        let pages = all(&settled(&[]).unwrap());
        assert_eq!(pages.iter().map(|page| page.path).collect::<Vec<_>>(), ["/configz", "/flagz"]);
        for page in pages {
            let text = (page.write)();
            assert!(text.contains("/etc/vsphere.conf"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
