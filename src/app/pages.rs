//! The pages of the secure port that show settings and flags.

mod configz;

use super::options::Value;
use super::settings::Settings;
use crate::runtime::admin::Page;
use std::sync::Arc;

/// Returns the pages `/configz` and `/flagz`, whose content does not change while the process runs.
pub fn all(settings: &Settings) -> Vec<Page> {
    vec![
        page("/configz", "application/json", configz::text(settings)),
        page("/flagz", "text/plain; charset=utf-8", flagz(&settings.options.values)),
    ]
}

fn page(path: &'static str, content_type: &'static str, text: String) -> Page {
    Page { path, content_type, write: Arc::new(move || text.clone()) }
}

/// Returns `/flagz` in the format of `k8s.io/component-base/zpages/flagz`, but always with the separator `=`.
fn flagz(values: &[Value]) -> String {
    let lines: String = values.iter().map(|value| format!("{}={}\n", value.flag.name, value.printed())).collect();
    format!(
        "\ncloud-controller-manager flagz\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
         compatibility guarantees and is for debugging purposes only.\n\n{lines}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::settings::tests::settled;

    #[test]
    fn both_pages_are_there_and_hold_no_secret() {
        // The file of `--cloud-config` contains this password.
        let pages = all(&settled(&[]).unwrap());
        assert_eq!(pages.iter().map(|page| page.path).collect::<Vec<_>>(), ["/configz", "/flagz"]);
        for page in pages {
            let text = (page.write)();
            assert!(text.contains("/etc/vsphere.conf"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn flags_stand_below_the_heading_in_the_order_of_their_names() {
        let settings = settled(&["-v=3", "--vmodule=a=1,b=2", "--vmodule=c_d=3"]).unwrap();
        let page = flagz(&settings.options.values);
        let (head, flags) = page.split_once("only.\n\n").unwrap();
        assert!(
            head.starts_with("\ncloud-controller-manager flagz\nWarning: This endpoint is not meant to be"),
            "{head}"
        );
        let names: Vec<_> = flags.lines().map(|line| line.split('=').next().unwrap()).collect();
        assert!(names.is_sorted() && names.len() > 100, "{names:?}");
        for line in ["cloud-provider=vsphere", "v=3", "vmodule=[a=1,b=2,c_d=3]", "webhooks=[]", "node-selector="] {
            assert!(flags.lines().any(|shown| shown == line), "{line} in {flags}");
        }
    }
}
