//! Why a request to the API server failed: names the server, and holds neither the output of a program that supplies
//! credentials nor text of a file, which the errors of the library quote.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use kube::client::{AuthError, DynBody};
use tower::layer::{LayerFn, layer_fn};
use tower::util::BoxService;
use tower::{BoxError, ServiceExt as _};

use super::{Transport, kubeconfig};

/// There is no answer of this API server, or its answer broke off.
#[derive(Debug, thiserror::Error)]
#[error("API server {server}")]
struct ServerError {
    server: Arc<str>,
    source: BoxError,
}

/// The credentials for the API server cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct CredentialsError(String);

/// Names the API server in each error.
pub(super) fn layer(server: &http::Uri) -> LayerFn<impl Fn(Transport) -> Transport + use<>> {
    let server: Arc<str> = server.to_string().trim_end_matches('/').into();
    layer_fn(move |inner: Transport| {
        let named = {
            let server = Arc::clone(&server);
            move |source: BoxError| -> BoxError {
                ServerError { server: Arc::clone(&server), source: without_quotes(source) }.into()
            }
        };
        let of_body = named.clone();
        let inner = inner.map_err(named);
        BoxService::new(inner.map_response(move |response: http::Response<Box<DynBody>>| {
            response.map(|body| Box::new(body.map_err(of_body.clone())) as Box<DynBody>)
        }))
    })
}

/// The error without what the library quotes.
pub(super) fn without_quotes(error: BoxError) -> BoxError {
    let error = match error.downcast::<kube::Error>().map(|error| *error) {
        Ok(kube::Error::Service(source)) => return without_quotes(source),
        Ok(kube::Error::Auth(error)) => return CredentialsError(problem(&error)).into(),
        Ok(kube::Error::HyperError(error)) => return error.into(),
        Ok(kube::Error::InferKubeconfig(error)) => return CredentialsError(kubeconfig::data_problem(&error)).into(),
        Ok(error @ kube::Error::RustlsTls(_)) => {
            return CredentialsError(kubeconfig::tls_problem(&error).to_owned()).into();
        }
        Ok(error) => return error.into(),
        Err(error) => error,
    };
    match error.downcast::<AuthError>() {
        Ok(error) => CredentialsError(problem(&error)).into(),
        Err(error) => error,
    }
}

/// The library's own error may have the output of the program, its environment, or the value of a key.
fn problem(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecStart(source) => format!("exec: the program cannot be started: {source}"),
        AuthError::AuthExecRun { out, .. } => format!("exec: the program failed: {}", out.status),
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) | AuthError::ExecPluginFailed => {
            "exec: the output of the program is not an ExecCredential with a status".to_owned()
        }
        AuthError::MissingCommand => "exec: the command is missing".to_owned(),
        AuthError::UnrefreshableTokenResponse => "exec: the program returned no token".to_owned(),
        AuthError::MalformedTokenExpirationDate(_) => "the expiration time of the token is not valid".to_owned(),
        AuthError::ReadTokenFile(source, _) => format!("tokenFile: the file cannot be read: {source}"),
        AuthError::InvalidBearerToken(_) => {
            "the token has characters that cannot be sent, such as a line break".to_owned()
        }
        AuthError::AuthExec(_) => "auth-provider: it is not supported, or its program failed".to_owned(),
        _ => "the credentials cannot be used".to_owned(),
    }
}
