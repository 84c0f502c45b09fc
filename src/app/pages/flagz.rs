//! Pure: `/flagz`, every flag with its final value, in the text format of `k8s.io/component-base/zpages/flagz`.

use crate::app::options::Value;

/// The component, as the Go program calls itself.
const COMPONENT: &str = "cloud-controller-manager";

/// The page. The library takes one of several separators at random, so that nobody parses it; here it is always `=`.
pub fn text(values: &[Value]) -> String {
    let head = format!(
        "\n{COMPONENT} flagz\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
         guarantees and is for debugging purposes only.\n\n"
    );
    head + &values.iter().map(|value| format!("{}={}\n", value.flag.name, value.printed())).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::settings::tests::settled;

    #[test]
    fn flags_stand_below_the_heading_in_the_order_of_their_names() {
        let settings = settled(&["-v=3", "--vmodule=a=1,b=2", "--vmodule=c_d=3"]).unwrap();
        let page = text(&settings.options.values);
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
