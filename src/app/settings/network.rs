//! The flags about load balancers and routes.

use super::Check;
use crate::controllers::service;

impl Check<'_> {
    pub(super) fn services(&mut self) -> service::Settings {
        service::Settings {
            workers: self.workers("concurrent-service-syncs"),
            cluster_name: self.options.text("cluster-name").to_owned(),
            selector: self.selector("service-selector"),
            has_node_selector: self.optional("node-selector").is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::app::settings::tests::settled;

    #[test]
    fn flags_about_services_are_taken_over() {
        let services = settled(&[]).unwrap().services;
        assert_eq!((services.workers.get(), services.cluster_name.as_str()), (8, "kubernetes"));
        assert_eq!((services.selector, services.has_node_selector), (None, false));
        let services =
            settled(&["--service-selector=a=b", "--node-selector=c", "--cluster-name=prod"]).unwrap().services;
        assert_eq!((services.selector.as_deref(), services.has_node_selector), (Some("a=b"), true));
        assert_eq!(services.cluster_name, "prod");
        for (argument, expected) in [
            ("--service-selector=a in", "expected a label selector"),
            ("--concurrent-service-syncs=0", "must be a positive number"),
        ] {
            let told = settled(&[argument]).unwrap_err().to_string();
            assert!(told.contains(argument) && told.contains(expected), "{told}");
        }
    }
}
