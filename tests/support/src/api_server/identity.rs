//! The CA of the test cluster, and kubeconfigs of any user.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

/// File name of the CA certificate.
pub const CA: &str = "ca.pem";
/// File name of the server certificate.
pub const SERVER_CERTIFICATE: &str = "server.pem";
/// File name of the server key.
pub const SERVER_KEY: &str = "server.key";
/// File name of the key that signs service account tokens.
pub const SERVICE_ACCOUNT_KEY: &str = "service-account.key";

/// File name of the public key for service account tokens.
pub const SERVICE_ACCOUNT_PUBLIC_KEY: &str = "service-account.pub";

/// Address of the node that runs the API server in a [`crate::sandbox`].
pub const NODE_ADDRESS: &str = "192.0.2.10";

/// Cluster IP of the Service `kubernetes`.
pub const SERVICE_ADDRESS: &str = "10.96.0.1";

/// The CA, which signs the certificates of the server and of users.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// Makes a CA, and writes the files that kube-apiserver needs.
    pub fn write_to(folder: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, "test cluster CA");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = parameters.self_signed(&key).unwrap().pem();
        let authority = Self { issuer: Issuer::new(parameters, key), certificate };

        let names =
            ["127.0.0.1", "localhost", "kubernetes.default.svc", NODE_ADDRESS, SERVICE_ADDRESS].map(str::to_owned);
        let mut server = CertificateParams::new(names).unwrap();
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (server_certificate, server_key) = authority.sign(&server);
        let tokens = KeyPair::generate().unwrap();
        for (file, text) in [
            (CA, authority.certificate.clone()),
            (SERVER_CERTIFICATE, server_certificate),
            (SERVER_KEY, server_key),
            (SERVICE_ACCOUNT_KEY, tokens.serialize_pem()),
            (SERVICE_ACCOUNT_PUBLIC_KEY, tokens.public_key_pem()),
        ] {
            std::fs::write(folder.join(file), text).unwrap();
        }
        authority
    }

    fn sign(&self, parameters: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (parameters.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Returns the key as PEM.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Makes the client certificate and key of this user, in this group if one is given.
    pub fn client(&self, user: &str, group: Option<&str>) -> (String, String) {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            parameters.distinguished_name.push(DnType::OrganizationName, group);
        }
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&parameters)
    }

    /// Returns a kubeconfig with a client certificate of this user, in this group if one is given.
    pub fn kubeconfig(&self, server: &str, user: &str, group: Option<&str>) -> String {
        let (certificate, key) = self.client(user, group);
        let user = json!({
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key),
        });
        self.kubeconfig_with(server, &user)
    }

    /// Returns a kubeconfig with a bearer token.
    pub fn kubeconfig_with_token(&self, server: &str, token: &str) -> String {
        self.kubeconfig_with(server, &json!({ "token": token }))
    }

    /// Returns a kubeconfig in JSON, which is valid YAML.
    fn kubeconfig_with(&self, server: &str, user: &Value) -> String {
        let ca = STANDARD.encode(&self.certificate);
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "test", "cluster": { "server": server, "certificate-authority-data": ca } }],
            "users": [{ "name": "test", "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "current-context": "test",
        });
        serde_json::to_string_pretty(&text).unwrap()
    }
}
