//! Checks of the session: how it begins, and which answers report that it has expired.

use std::time::Duration;

use ccm::clients::http::{self, Settings};
use ccm::clients::nsx::{AccessToken, Client, Kind, Login};
use secrecy::SecretString;

use super::beliefs::{CREATE, DESTROYED, NEITHER, NO_SESSION, NO_TOKEN, USE};
use super::{Check, Ended, told};
use crate::UNUSABLE_SETTINGS;
use crate::belief::Belief;
use crate::servers::NsxProof;
use crate::wire::Alteration;

/// A short list that every manager has.
const SITES: &str = "/infra/sites";

const PROBE: &str = "field-test.session";

/// A cookie that no manager issued.
const NO_COOKIE: &str = "JSESSIONID=0000000000000000000000000000F1E1";

const TOKEN: &str = "X-XSRF-TOKEN";

/// Timeout for the exchange of a token, as in the product.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);

/// Logs in once, and makes a call.
pub(super) async fn begin(check: &mut Check, proof: &NsxProof) -> Result<(), Ended> {
    let login = match proof {
        NsxProof::Certificate => Login::with_certificate(),
        NsxProof::Token { service, path, refresh } => access_token(service, path, refresh).await?,
        NsxProof::Password(scheme, user, password) => match check.client.open_session(*scheme, user, password).await {
            Ok(Some(login)) => {
                let status = check.last("session.create").and_then(|exchange| exchange.status).unwrap_or_default();
                check.sheet.judge(&CREATE, status == 200, format!("status {status}, cookie and token"));
                login
            }
            Ok(None) => {
                check.sheet.skip(&CREATE, "this manager has no sessions: each call has user and password");
                let basic = check.client.try_basic(*scheme, user, password).await;
                basic.map_err(|error| refused(&error))?
            }
            Err(error) => {
                // Without an answer the behaviour of the server is unknown. A success without a cookie or token is an
                // answer.
                let is_answered = check.last("session.create").is_some_and(|exchange| exchange.status.is_some());
                if error.kind != Kind::Rejected && is_answered {
                    check.sheet.judge(&CREATE, false, told(&error));
                }
                return Err(refused(&error));
            }
        },
    };
    check.login = Some(login.clone());
    check.client.adopt(login.clone());
    match check.client.get(SITES, PROBE).await {
        Ok(_) if login.is_session() => check.sheet.judge(&USE, true, "status 200"),
        Ok(_) => check.sheet.skip(&USE, "there is no session"),
        Err(error) => {
            if login.is_session() {
                check.sheet.judge(&USE, false, told(&error));
            }
            check.ends(&error)?;
        }
    }
    if !login.is_session() {
        for belief in [&CREATE, &NO_TOKEN, &NO_SESSION, &NEITHER, &DESTROYED] {
            check.sheet.skip(belief, "there is no session");
        }
    }
    Ok(())
}

/// Fetches an access token, once. Its answer is not in the table, because the token service is not the tested server.
async fn access_token(service: &Settings, path: &str, refresh: &SecretString) -> Result<Login, Ended> {
    let service = http::Client::new(service.clone()).map_err(|_| Ended(UNUSABLE_SETTINGS.to_owned()))?;
    let token = AccessToken::exchange(&service, path, refresh, EXCHANGE_LIMIT).await;
    token.map(|token| Login::with_token(&token)).map_err(|error| refused(&error))
}

/// Logs in again, if there was a session.
pub(super) async fn again(client: &Client, proof: &NsxProof) -> Option<Login> {
    match proof {
        NsxProof::Certificate | NsxProof::Token { .. } => None,
        NsxProof::Password(scheme, user, password) => client.open_session(*scheme, user, password).await.ok().flatten(),
    }
}

fn refused(error: &ccm::clients::nsx::Error) -> Ended {
    match error.kind {
        Kind::Rejected => Ended(crate::REJECTED.to_owned()),
        _ => Ended(format!("the login failed: {}", told(error))),
    }
}

/// Sends invalid sessions to the manager, ends the valid session, and sends that one again.
pub(super) async fn end(check: &mut Check) -> Result<(), Ended> {
    let Some(login) = check.login.clone().filter(Login::is_session) else { return Ok(()) };
    let cases: [(&'static Belief, &[Alteration]); 3] = [
        (&NO_TOKEN, &[Alteration::Without(TOKEN)]),
        (&NO_SESSION, &[Alteration::Cookie(NO_COOKIE)]),
        (&NEITHER, &[Alteration::Cookie(NO_COOKIE), Alteration::Without(TOKEN)]),
    ];
    for (belief, alterations) in cases {
        let _altered = check.wire.alter(alterations);
        probe(check, &login, belief).await?;
    }
    check.client.take();
    if let Err(error) = check.client.end(login.clone()).await {
        check.sheet.skip(&DESTROYED, format!("the session was not ended: {}", told(&error)));
        return check.ends(&error);
    }
    check.login = None;
    probe(check, &login, &DESTROYED).await?;
    check.client.take();
    Ok(())
}

/// Makes a call that the manager must reject as one with an expired session.
async fn probe(check: &mut Check, login: &Login, belief: &'static Belief) -> Result<(), Ended> {
    // The client drops a login that was rejected, so each call needs it again.
    check.client.adopt(login.clone());
    check.wire.take();
    let answer = check.client.get(SITES, PROBE).await;
    let Some(exchange) = check.last(PROBE).filter(|exchange| exchange.status.is_some()) else {
        return answer.map(drop).map_or_else(|error| check.failed(belief, &error), Ok);
    };
    let code = crate::wire::error_code(&exchange.json());
    let is_over = match exchange.status {
        Some(401) => true,
        Some(403) => matches!(code, Some(98 | 403)),
        _ => false,
    };
    check.sheet.judge(belief, is_over, exchange.status_and_code());
    check.client.adopt(login.clone());
    Ok(())
}
