//! The flags of the secure port.

use super::Check;
use crate::runtime::admin::{CertificateSource, Settings, TlsRules};
use std::net::{IpAddr, SocketAddr};

impl Check<'_> {
    /// `Some(None)` is no secure port.
    pub(super) fn serving(&mut self) -> Option<Option<Settings>> {
        let options = &self.options.serving;
        let port = self.number::<u16>("--secure-port", &options.secure_port, "a port from 1 to 65535, or 0 for none");
        let expected = "an IP address such as 0.0.0.0 or ::";
        let address = self.number::<IpAddr>("--bind-address", &options.bind_address, expected);
        let (port, address) = (port?, address?);
        let serving = Settings {
            address: SocketAddr::new(address, port),
            certificate: CertificateSource::Memory,
            by_name: Vec::new(),
            tls: TlsRules::default(),
            http2: true,
            streams: 100,
            shares_address: false,
            shares_port: false,
            debug: true,
        };
        Some((port != 0).then_some(serving))
    }
}
