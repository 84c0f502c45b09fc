//! Adds the API server's URL to errors of requests, and records the URL for timeout errors.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use kube::client::DynBody;
use tower::layer::{LayerFn, layer_fn};
use tower::util::BoxService;
use tower::{BoxError, ServiceExt as _};

use super::transport::Transport;
use crate::kubernetes::call;

#[derive(Debug, thiserror::Error)]
#[error("API server {server}")]
struct ServerError {
    server: Arc<str>,
    source: BoxError,
}

pub(super) fn layer(server: &http::Uri) -> LayerFn<impl Fn(Transport) -> Transport + use<>> {
    let server: Arc<str> = server.to_string().trim_end_matches('/').into();
    layer_fn(move |inner: Transport| {
        let named = {
            let server = Arc::clone(&server);
            move |source: BoxError| -> BoxError { ServerError { server: Arc::clone(&server), source }.into() }
        };
        let of_body = named.clone();
        let asked = Arc::clone(&server);
        let inner = inner.map_err(named).map_future(move |answer| call::recording_server(Arc::clone(&asked), answer));
        BoxService::new(inner.map_response(move |response: http::Response<Box<DynBody>>| {
            response.map(|body| Box::new(body.map_err(of_body.clone())) as Box<DynBody>)
        }))
    })
}
