//! Pure: the load balancer that a Service asks for, and what is refused before anything is created.

use k8s_openapi::api::core::v1::{Service, ServicePort};

use super::layout::{Port, Protocol};
use crate::cloud::Error;
use crate::providers::vsphere::config::{DEFAULT_CLASS, LoadBalancers};
use crate::providers::vsphere::reason;

/// The annotation that names the class.
pub const ANNOTATION_CLASS: &str = "loadbalancer.vmware.io/class";

/// The name of the class that a Service asks for.
pub fn class_of(service: &Service) -> &str {
    let annotations = service.metadata.annotations.as_ref();
    let class = annotations.and_then(|annotations| annotations.get(ANNOTATION_CLASS)).map(|class| class.trim());
    class.filter(|class| !class.is_empty()).unwrap_or(DEFAULT_CLASS)
}

/// Checks that the configuration has this class.
///
/// # Errors
/// [`Error::Invalid`] that names the classes there are.
pub fn check_class(config: &LoadBalancers, class: &str) -> Result<(), Error> {
    if config.class(class).is_some() {
        return Ok(());
    }
    let mut known: Vec<&str> = config.classes.keys().map(String::as_str).collect();
    if !known.contains(&DEFAULT_CLASS) {
        known.push(DEFAULT_CLASS);
    }
    let message = format!(
        "the annotation {ANNOTATION_CLASS} asks for the class {class:?}, which the cloud config does not have; it has {}",
        known.join(", ")
    );
    Err(Error::Invalid { reason: reason::LoadBalancerClassUnknown, message })
}

/// The ports of a Service, each with the port of the nodes, in their order.
///
/// # Errors
/// [`Error::Invalid`] that names the port which NSX cannot serve, and why.
pub fn ports_of(service: &Service) -> Result<Vec<(Port, u16)>, Error> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    if ports.is_empty() {
        let message = "the Service has no ports; expected at least one".to_owned();
        return Err(Error::Invalid { reason: reason::LoadBalancerNotPossible, message });
    }
    ports.iter().map(port_of).collect()
}

fn port_of(port: &ServicePort) -> Result<(Port, u16), Error> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let wrong = |what: &str| {
        let message = format!("port {protocol}/{} cannot be served by NSX: {what}", port.port);
        Error::Invalid { reason: reason::LoadBalancerNotPossible, message }
    };
    let kind = match protocol {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        _ => return Err(wrong("its load balancers have TCP and UDP")),
    };
    let number = u16::try_from(port.port).ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| wrong("expected a number from 1 to 65535"))?;
    let node_port = port.node_port.and_then(|node_port| u16::try_from(node_port).ok()).filter(|number| *number > 0);
    let node_port =
        node_port.ok_or_else(|| wrong("it has no node port; spec.allocateLoadBalancerNodePorts must not be false"))?;
    Ok((Port { protocol: kind, number }, node_port))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(value: Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_class_is_that_of_the_annotation_without_blanks() {
        for (annotation, expected) in [(" web ", "web"), ("", "default"), ("  ", "default")] {
            assert_eq!(
                class_of(&service(json!({"metadata": {"annotations": {ANNOTATION_CLASS: annotation}}}))),
                expected
            );
        }
        assert_eq!(class_of(&Service::default()), "default");
    }

    #[test]
    fn l_25_ports_that_nsx_cannot_serve_are_refused_by_name() {
        assert!(ports_of(&service(json!({"spec": {"ports": []}}))).unwrap_err().to_string().contains("no ports"));
        let with = |port: Value| ports_of(&service(json!({"spec": {"ports": [port]}})));
        let port = Port { protocol: Protocol::Udp, number: 53 };
        assert_eq!(with(json!({"port": 53, "protocol": "UDP", "nodePort": 30053})).unwrap(), [(port, 30053)]);
        for (wrong, expected) in [
            (json!({"port": 80, "protocol": "SCTP", "nodePort": 30080}), "port SCTP/80 cannot be served by NSX"),
            (json!({"port": 80, "nodePort": 0}), "port TCP/80 cannot be served by NSX: it has no node port"),
            (json!({"port": 80}), "port TCP/80 cannot be served by NSX: it has no node port"),
            (json!({"port": 0, "nodePort": 30080}), "port TCP/0 cannot be served"),
        ] {
            let error = with(wrong).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert_eq!(error.reason(), reason::LoadBalancerNotPossible);
        }
    }
}
