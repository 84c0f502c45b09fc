//! Request bodies. A body may contain a password, so its bytes are wiped on drop.
//!
//! Only the buffers of this module are wiped, not the copies in the HTTP and TLS libraries.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use zeroize::Zeroize as _;

/// The characters that are escaped in form values.
const FORM: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The body of a request. Clones share the bytes, and the last clone wipes them.
#[derive(Clone, Default)]
pub struct Body(Bytes);

impl Body {
    pub(super) fn to_shared(&self) -> Bytes {
        self.0.clone()
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(WipedBytes(bytes).into_shared())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<BodyWriter> for Body {
    fn from(writer: BodyWriter) -> Self {
        Self(writer.0.into_shared())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.0.len())
    }
}

/// Builder of a body. When the buffer grows, the old buffer is wiped.
#[derive(Default)]
pub struct BodyWriter(WipedBytes);

impl BodyWriter {
    /// Builds a writer whose buffer does not grow before this many bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(WipedBytes(Vec::with_capacity(capacity)))
    }

    /// Appends a text.
    pub fn push_str(&mut self, text: &str) {
        self.push_bytes(text.as_bytes());
    }

    /// Appends texts, one after the other.
    pub fn push_all(&mut self, texts: &[&str]) {
        texts.iter().for_each(|text| self.push_str(text));
    }

    /// Appends a character.
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// Appends bytes as they are.
    pub fn push_bytes(&mut self, more: &[u8]) {
        let bytes = &mut self.0.0;
        let needed = bytes.len().saturating_add(more.len());
        if needed > bytes.capacity() {
            let mut larger = WipedBytes(Vec::with_capacity(needed.max(bytes.capacity().saturating_mul(2)).max(256)));
            larger.0.extend_from_slice(bytes);
            self.0 = larger;
        }
        self.0.0.extend_from_slice(more);
    }

    /// Appends `name=value` of a form and escapes the value.
    pub fn push_form(&mut self, name: &str, value: &str) {
        self.push_str(name);
        self.push('=');
        for part in utf8_percent_encode(value, &FORM) {
            self.push_str(part);
        }
    }

    /// Returns the bytes written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }
}

#[derive(Default)]
pub(super) struct WipedBytes(pub(super) Vec<u8>);

impl WipedBytes {
    /// Shares the bytes without a copy; the last owner wipes them.
    pub(super) fn into_shared(self) -> Bytes {
        if self.0.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }
}

impl AsRef<[u8]> for WipedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for WipedBytes {
    fn drop(&mut self) {
        self.0.as_mut_slice().zeroize();
        #[cfg(test)]
        tests::look_at(&self.0);
        // Also wipes the unused part of the buffer, which may contain removed bytes.
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    //! Tests that every buffer is overwritten with zeros before its memory is released.

    use std::cell::RefCell;

    use super::{Body, BodyWriter};

    thread_local! {
        static DROPPED: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    }

    /// Records the content of a buffer. The drop of each buffer calls it after the buffer was overwritten.
    pub(super) fn look_at(bytes: &[u8]) {
        DROPPED.with_borrow_mut(|dropped| dropped.push(bytes.to_vec()));
    }

    fn dropped() -> Vec<Vec<u8>> {
        DROPPED.take()
    }

    #[test]
    fn a_body_is_overwritten_with_its_last_clone_and_not_before() {
        let body = Body::from("hunter2".to_owned());
        let shared = body.to_shared();
        let clone = body.clone();
        drop(body);
        drop(clone);
        assert_eq!(dropped(), Vec::<Vec<u8>>::new(), "the library still sends it");
        assert_eq!(shared.as_ref(), b"hunter2");
        drop(shared);
        assert_eq!(dropped(), [vec![0; 7]]);
    }

    #[test]
    fn a_writer_that_grows_leaves_no_copy_behind() {
        let mut writer = BodyWriter::with_capacity(4);
        writer.push_str("hunt");
        let first = writer.as_bytes().as_ptr();
        writer.push_str("er2");
        assert_ne!(writer.as_bytes().as_ptr(), first, "it did not grow");
        assert_eq!(dropped(), [vec![0; 4]], "the buffer it left");
        let last = writer.as_bytes().as_ptr();
        let body = Body::from(writer);
        assert_eq!((body.as_ptr(), &*body), (last, b"hunter2".as_slice()), "the body is the writer's buffer");
        drop(body);
        assert_eq!(dropped(), [vec![0; 7]]);
    }

    #[test]
    fn forms_are_escaped() {
        let mut body = BodyWriter::default();
        body.push_form("j_password", "a&b=c %+ü");
        assert_eq!(body.as_bytes(), b"j_password=a%26b%3Dc%20%25%2B%C3%BC");
    }

    #[test]
    fn bodies_print_their_size_only() {
        assert_eq!(format!("{:?}", Body::from(b"hunter2".to_vec())), "Body(7 bytes)");
    }
}
