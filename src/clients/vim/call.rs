//! One SOAP call: sends the envelope, manages the cookie, and decodes the response or fault.

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;
use secrecy::{ExposeSecret, SecretString};
use tracing::trace;

use super::decoder::{DecodeError, Decoder, StartTag};
use super::envelope::RequestBody;
use super::fault::Fault;
use super::value::read_reference;
use super::{Client, ConnectionState, Error, MoRef, ServiceContent};
use crate::clients::http::{Method, Request, Response};

const COOKIE: &str = "vmware_soap_session";

/// The largest accepted answer, in bytes. A page of 1,000 VMs has about 12 MB.
const MAX_BYTES: usize = 64 << 20;

pub(super) struct VimCall {
    pub(super) method: &'static str,
    pub(super) timeout: Duration,
    /// Whether the call may be sent a second time if its connection breaks.
    pub(super) repeatable: bool,
}

impl Client {
    pub(super) async fn read<T>(
        &self,
        method: &'static str,
        body: RequestBody,
        answer: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, Error> {
        self.call(VimCall { method, timeout: self.inner.timeouts.call, repeatable: true }, body, answer).await
    }

    pub(super) async fn write<T>(
        &self,
        method: &'static str,
        body: RequestBody,
        answer: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, Error> {
        self.call(VimCall { method, timeout: self.inner.timeouts.call, repeatable: false }, body, answer).await
    }

    /// Calls a method; `answer` decodes the content of its response element.
    pub(super) async fn call<T>(
        &self,
        call: VimCall,
        body: RequestBody,
        answer: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, Error> {
        let method = call.method;
        let answered = async { self.classify(method, &self.exchange(call, body).await?, answer) };
        self.inner.http.observed(method, Error::reason, answered).await
    }

    async fn exchange(&self, call: VimCall, body: RequestBody) -> Result<Response, Error> {
        let number = self.inner.calls.fetch_add(1, Ordering::Relaxed);
        let operation_id = format!("{}-{number}", self.inner.prefix);
        trace!(endpoint = self.endpoint(), method = call.method, operation_id, "calling");
        let (version, cookie) = {
            let state = self.state();
            (state.version.clone(), state.cookie.clone())
        };
        let mut request = Request::new(Method::POST, "/sdk", call.method, call.timeout);
        request.headers.push(("Content-Type", "text/xml; charset=\"utf-8\"".to_owned()));
        request.headers.push(("SOAPAction", format!("urn:vim25/{version}")));
        if let Some(cookie) = &cookie {
            request.secret_headers.push(("Cookie", format!("{COOKIE}={}", cookie.expose_secret()).into()));
        }
        request.body = body.into_envelope(call.method, &operation_id);
        request.max_bytes = MAX_BYTES;
        request.repeatable = call.repeatable;
        let response = self.inner.http.send(request).await?;
        if let Some(offered) = offered_cookie(&response) {
            self.keep_cookie(cookie.as_ref(), offered);
        }
        Ok(response)
    }

    fn classify<T>(
        &self,
        method: &'static str,
        response: &Response,
        answer: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, Error> {
        // vCenter sends faults with status 500. Any other error status comes from a proxy or another service.
        if !response.is_success() && response.status != 500 {
            return Err(self.inner.http.status_error(method, response).into());
        }
        // Replaces bytes that are not UTF-8, which guests may supply, because the rest of the answer is still valid.
        let text = str::from_utf8(&response.body)
            .map_or_else(|_| String::from_utf8_lossy(&response.body), std::borrow::Cow::Borrowed);
        match read_envelope(&text, method, answer) {
            Ok(Err(fault)) => Err(Error::Fault(self.inner.http.failed(method), Box::new(fault))),
            // With an error status, only a fault is accepted. Any other answer could be mistaken for an empty result.
            Ok(Ok(_)) | Err(_) if !response.is_success() => Err(self.inner.http.status_error(method, response).into()),
            Ok(Ok(value)) => Ok(value),
            Err(source) => Err(Error::Malformed(self.inner.http.failed(method), source)),
        }
    }

    /// Stores the cookie of an answer only if the request was sent with the current cookie. Otherwise a late answer of
    /// an earlier session would replace the cookie of the new session.
    fn keep_cookie(&self, sent: Option<&SecretString>, offered: SecretString) {
        let mut state = self.state();
        if state.cookie.as_ref().map(ExposeSecret::expose_secret) == sent.map(ExposeSecret::expose_secret) {
            state.cookie = Some(offered);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.inner.state.lock()
    }

    pub(super) fn content(&self) -> ServiceContent {
        self.state().content.clone()
    }
}

/// Returns the last session cookie that the answer sets. vCenter quotes the value and expects it back with its quotes.
fn offered_cookie(response: &Response) -> Option<SecretString> {
    let mut offered = response.headers.get_all(http::header::SET_COOKIE).iter().filter_map(|header| {
        let (name, value) = header.to_str().ok()?.split(';').next()?.split_once('=')?;
        (name.trim() == COOKIE && !value.trim().is_empty()).then(|| value.trim().to_owned())
    });
    offered.next_back().map(SecretString::from)
}

/// Reads the response element or the fault of an envelope. A fault takes precedence even if it follows a response (SOAP
/// 1.1, 4.4).
pub(super) fn read_envelope<T>(
    text: &str,
    method: &str,
    answer: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
) -> Result<Result<T, Fault>, DecodeError> {
    let mut decoder = Decoder::new(text);
    let root = decoder.next_child()?.ok_or(DecodeError::Missing("Envelope"))?;
    if root.name != "Envelope" || !decoder.descend("Body")? {
        return Err(DecodeError::Missing("Body"));
    }
    let entry = decoder.next_element("Body")?.ok_or(DecodeError::Missing("response"))?;
    let mut result = match entry.name {
        "Fault" => Err(Fault::read(&mut decoder, true)?),
        name if name.strip_suffix("Response") == Some(method) => Ok(answer(&mut decoder)?),
        _ => return Err(unexpected("Body", &entry)),
    };
    while let Some(entry) = decoder.next_element("Body")? {
        match (&result, entry.name) {
            (Err(_), _) => decoder.skip()?,
            (Ok(_), "Fault") => result = Err(Fault::read(&mut decoder, true)?),
            (Ok(_), _) => return Err(unexpected("Body", &entry)),
        }
    }
    finish(&mut decoder)?;
    Ok(result)
}

fn unexpected(element: &'static str, found: &StartTag<'_>) -> DecodeError {
    DecodeError::Unexpected { element, found: found.name.chars().take(80).collect() }
}

/// Reads to the end of the document. A truncated answer, a second body and a second document are errors.
fn finish(decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
    while let Some(part) = decoder.next_child()? {
        if part.name == "Body" {
            return Err(unexpected("Envelope", &part));
        }
        decoder.skip()?;
    }
    match decoder.next_child()? {
        Some(part) => Err(unexpected("Envelope", &part)),
        None => Ok(()),
    }
}

pub(super) fn nothing(decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
    return_values(decoder, |decoder, _| decoder.skip()).map(drop)
}

/// Decodes every `returnval` with `read`. Responses contain nothing else, so other content is an error and never an
/// empty result.
pub(super) fn return_values<T>(
    decoder: &mut Decoder<'_>,
    mut read: impl FnMut(&mut Decoder<'_>, &StartTag<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut values = Vec::new();
    while let Some(start) = decoder.next_element("response")? {
        if start.name != "returnval" {
            return Err(unexpected("response", &start));
        }
        values.push(read(decoder, &start)?);
    }
    Ok(values)
}

/// Decodes the `returnval` of a method that returns at most one. A second `returnval` is an error.
pub(super) fn return_value<T>(
    decoder: &mut Decoder<'_>,
    read: impl FnMut(&mut Decoder<'_>, &StartTag<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    let mut values = return_values(decoder, read)?;
    match values.len() {
        0 | 1 => Ok(values.pop()),
        more => Err(DecodeError::Unexpected { element: "response", found: format!("{more} results") }),
    }
}

pub(super) fn references(decoder: &mut Decoder<'_>) -> Result<Vec<MoRef>, DecodeError> {
    return_values(decoder, read_reference)
}

pub(super) fn reference(decoder: &mut Decoder<'_>) -> Result<MoRef, DecodeError> {
    return_value(decoder, read_reference)?.ok_or(DecodeError::Missing("returnval"))
}

#[cfg(test)]
mod tests;
