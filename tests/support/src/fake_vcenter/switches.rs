//! More verbs: tags, the tree, the certificate, the cookie.

use std::sync::PoisonError;

use tokio_rustls::TlsAcceptor;

use super::{FakeVcenter, http, inventory};

/// What a fake shows of itself in a handshake.
#[derive(Clone)]
pub struct Certificate(TlsAcceptor);

impl FakeVcenter {
    /// Gives a tag another name; its id stays.
    pub fn rename_tag(&self, category: &str, name: &str, to: &str) {
        self.change(|world| world.tagging.rename(category, name, to));
    }

    /// Deletes a tag; what it was attached to has it no more.
    pub fn delete_tag(&self, category: &str, name: &str) {
        self.change(|world| world.tagging.delete(category, name));
    }

    /// Attaches a tag to one more object.
    pub fn attach_tag(&self, category: &str, name: &str, kind: &str, object: &str) {
        self.change(|world| {
            let object = world.inventory.named(kind, object);
            world.tagging.attach(category, name, object);
        });
    }

    /// Puts an object below another one.
    pub fn set_parent(&self, kind: &str, name: &str, parent: (&str, &str)) {
        self.change(|world| {
            let object = world.inventory.named(kind, name);
            let parent = world.inventory.named(parent.0, parent.1);
            world.inventory.change(&object).properties.insert("parent".into(), inventory::Val::Ref(parent));
        });
    }

    /// Shows another certificate to new connections, self-signed as the first, and closes those there are. Gives it as
    /// PEM.
    pub fn change_certificate(&self) -> String {
        let (acceptor, pem) = http::identity();
        self.use_acceptor(acceptor);
        pem
    }

    /// The certificate that is shown now, to be shown again later.
    #[must_use]
    pub fn certificate(&self) -> Certificate {
        Certificate(self.shared.acceptor.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Shows this certificate to new connections, and closes those there are.
    pub fn use_certificate(&self, certificate: Certificate) {
        self.use_acceptor(certificate.0);
    }

    fn use_acceptor(&self, acceptor: TlsAcceptor) {
        *self.shared.acceptor.lock().unwrap_or_else(PoisonError::into_inner) = acceptor;
        self.sever();
    }

    /// Sends cookies without quotes from now on, or with them again.
    pub fn set_cookie_quoted(&self, is_quoted: bool) {
        self.change(|world| world.is_cookie_bare = !is_quoted);
    }
}
