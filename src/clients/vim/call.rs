//! One call: envelope out, cookie kept by hand, answer or fault in.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use secrecy::{ExposeSecret, SecretString};
use tracing::trace;

use super::decode::{DecodeError, Decoder, Start};
use super::envelope::Body;
use super::fault::Fault;
use super::types::MoRef;
use super::value::read_reference;
use super::{Client, Error, ServiceContent, State};
use crate::clients::http::{Method, Request, Response};

const COOKIE: &str = "vmware_soap_session";

/// The largest answer accepted. A page of 1,000 virtual machines is about 12 MB.
const MAX_BYTES: usize = 64 << 20;

/// How one method is called.
pub(super) struct Call {
    pub(super) method: &'static str,
    pub(super) timeout: Duration,
    /// Whether the server may see it twice when a connection broke.
    pub(super) repeatable: bool,
}

impl Client {
    /// Calls a method that only reads.
    pub(super) async fn read<T>(
        &self,
        method: &'static str,
        body: Body,
        answer: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, Error> {
        self.call(Call { method, timeout: self.inner.timeouts.call, repeatable: true }, body, answer).await
    }

    /// Calls a method that changes something in the session.
    pub(super) async fn write<T>(
        &self,
        method: &'static str,
        body: Body,
        answer: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, Error> {
        self.call(Call { method, timeout: self.inner.timeouts.call, repeatable: false }, body, answer).await
    }

    /// Calls a method; `answer` reads the content of its response element.
    pub(super) async fn call<T>(
        &self,
        call: Call,
        body: Body,
        answer: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, Error> {
        let method = call.method;
        let began = Instant::now();
        let result = match self.exchange(call, body).await {
            Ok(response) => self.judge(method, &response, answer),
            Err(error) => Err(error),
        };
        let outcome = result.as_ref().map_or_else(Error::reason, |_| "ok");
        self.inner.http.observe(method, outcome, began.elapsed());
        result
    }

    async fn exchange(&self, call: Call, body: Body) -> Result<Response, Error> {
        let number = self.inner.calls.fetch_add(1, Ordering::Relaxed);
        let operation_id = format!("{}-{number}", self.inner.prefix);
        trace!(endpoint = self.endpoint(), method = call.method, operation_id, "calling");
        let (version, cookie) = {
            let state = self.state();
            (state.version.clone(), state.cookie.clone())
        };
        let mut request = Request::new(Method::Post, "/sdk", call.method, call.timeout);
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

    fn judge<T>(
        &self,
        method: &'static str,
        response: &Response,
        answer: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, Error> {
        // Faults come with 500; anything else that is no success is a proxy's or another service's.
        if !response.is_success() && response.status != 500 {
            return Err(self.inner.http.status_error(method, response).into());
        }
        // Guests may supply text that is no UTF-8; the rest of the answer is still good.
        let text = String::from_utf8_lossy(&response.body);
        match read_envelope(&text, method, answer) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(fault)) => {
                Err(Error::Fault { endpoint: self.endpoint().to_owned(), operation: method, fault: Box::new(fault) })
            }
            Err(_) if !response.is_success() => Err(self.inner.http.status_error(method, response).into()),
            Err(source) => Err(Error::Malformed { endpoint: self.endpoint().to_owned(), operation: method, source }),
        }
    }

    /// Keeps a new cookie only if the request went out with the one that is held: a late answer of an earlier session
    /// must not replace the new one's.
    fn keep_cookie(&self, sent: Option<&SecretString>, offered: SecretString) {
        let mut state = self.state();
        if state.cookie.as_ref().map(ExposeSecret::expose_secret) == sent.map(ExposeSecret::expose_secret) {
            state.cookie = Some(offered);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn content(&self) -> ServiceContent {
        self.state().content.clone()
    }
}

/// The last session cookie the answer sets, quotes included: a real vCenter's value is quoted and goes back as it came.
fn offered_cookie(response: &Response) -> Option<SecretString> {
    let mut offered = response.headers.get_all(http::header::SET_COOKIE).iter().filter_map(|header| {
        let (name, value) = header.to_str().ok()?.split(';').next()?.split_once('=')?;
        (name.trim() == COOKIE && !value.trim().is_empty()).then(|| value.trim().to_owned())
    });
    offered.next_back().map(SecretString::from)
}

/// Finds the response element or the fault in an envelope.
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
    let content = decoder.next_child()?.ok_or(DecodeError::Missing("response"))?;
    if content.name == "Fault" {
        let fault = Fault::read_soap(&mut decoder)?;
        finish(&mut decoder)?;
        return Ok(Err(fault));
    }
    if content.name.strip_suffix("Response") != Some(method) {
        let found = content.name.chars().take(80).collect();
        return Err(DecodeError::Unexpected { element: "Body", found });
    }
    let value = answer(&mut decoder)?;
    finish(&mut decoder)?;
    Ok(Ok(value))
}

/// Reads on to the end of the envelope: an answer that was cut anywhere is not an answer.
fn finish(decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
    while decoder.depth() > 0 {
        if decoder.next_child()?.is_some() {
            decoder.skip()?;
        }
    }
    Ok(())
}

/// An answer without content.
pub(super) fn nothing(decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
    decoder.skip()
}

/// Every `returnval`, read by `read`.
pub(super) fn return_values<T>(
    decoder: &mut Decoder<'_>,
    mut read: impl FnMut(&mut Decoder<'_>, &Start) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut values = Vec::new();
    while let Some(start) = decoder.next_child()? {
        if start.name == "returnval" {
            values.push(read(decoder, &start)?);
        } else {
            decoder.skip()?;
        }
    }
    Ok(values)
}

/// References, as the searches return them.
pub(super) fn references(decoder: &mut Decoder<'_>) -> Result<Vec<MoRef>, DecodeError> {
    return_values(decoder, read_reference)
}

/// Exactly one reference, as the creating methods return it.
pub(super) fn reference(decoder: &mut Decoder<'_>) -> Result<MoRef, DecodeError> {
    references(decoder)?.into_iter().next().ok_or(DecodeError::Missing("returnval"))
}

#[cfg(test)]
mod tests;
