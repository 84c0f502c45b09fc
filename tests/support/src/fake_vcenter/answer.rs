//! Answers one request: with the fault of a rule, or as the server does.

use std::sync::Arc;
use std::time::Instant;

use super::fault::{Fault, Trouble};
use super::soap::Done;
use super::{LoginOutcome, Shared, World, logins, rest, soap, waits, xml};
use crate::fake_server::http::{Delivery, Reply, Request};

pub(super) async fn answer(shared: Arc<Shared>, request: Request) -> Reply {
    let is_soap = request.method == "POST" && request.path == "/sdk";
    let call = if is_soap { xml::parse(&request.body) } else { Ok(xml::Element::default()) };
    let call = call.map(|envelope| {
        let body = envelope.children.into_iter().find(|child| child.name == "Body");
        body.and_then(|body| body.children.into_iter().next()).unwrap_or_default()
    });
    let call = match call {
        Ok(call) => call,
        Err(reason) => return soap_fault(&Fault::new("InvalidRequest").field("reason", &reason)),
    };
    let operation = match request.path.as_str() {
        "/sdk" => call.name.clone(),
        "/sdk/vimServiceVersions.xml" => "vimServiceVersions.xml".to_owned(),
        _ => rest::operation(&request),
    };
    let (delay, login, started) = {
        let mut world = shared.world();
        let World { logins, user, password, delay, .. } = &mut *world;
        (*delay, logins.begin(&operation, &call, &request, (user, password)), Instant::now())
    };
    if delay.is_some() {
        tokio::time::sleep(delay.unwrap_or_default()).await;
    }
    let begun = Instant::now();
    let reply = answer_to(&shared, &request, &call, &operation, is_soap, login).await;
    let mut world = shared.world();
    if let Some(number) = login {
        world.logins.end(number, logins::outcome(&reply));
    }
    let counts = &mut world.counts;
    counts.bytes_received += request.body.len() as u64;
    counts.bytes_sent += reply.body.len() as u64;
    counts.delayed += begun - started;
    if operation != "WaitForUpdatesEx" {
        counts.busy += begun.elapsed();
    }
    reply
}

async fn answer_to(
    shared: &Arc<Shared>,
    request: &Request,
    call: &xml::Element,
    operation: &str,
    is_soap: bool,
    login: Option<usize>,
) -> Reply {
    let early = {
        let mut world = shared.world();
        *world.counts.operations.entry(operation.to_owned()).or_default() += 1;
        let early = world.rules.take(operation, |trouble| !trouble.is_late());
        if let (Some(Trouble::Hang), Some(number)) = (&early, login) {
            world.logins.end(number, LoginOutcome::Unanswered);
        }
        early
    };
    if let Some(trouble) = early {
        return instead(trouble).await;
    }
    let mut reply = match operation {
        "vimServiceVersions.xml" => Reply::new(200, "text/xml", soap::VERSIONS.to_owned()),
        _ if is_soap => soap_reply(shared, call, request).await,
        _ if request.path.starts_with("/rest/") => shared.world().rest(operation, request),
        _ => Reply::new(404, "text/html", "<html><body>404 Not Found</body></html>".to_owned()),
    };
    let late = shared.world().rules.take(operation, Trouble::is_late);
    let delivery = match late {
        Some(Trouble::Cut(count)) => Delivery::CutAfter(count),
        Some(Trouble::Slow(pause)) => Delivery::Slow(pause),
        Some(Trouble::Late(pause)) => {
            tokio::time::sleep(pause).await;
            reply.delivery
        }
        Some(Trouble::Lose) => Delivery::Close,
        Some(Trouble::Rewrite(rewrite)) => {
            reply.body = rewrite(&reply.body);
            reply.delivery
        }
        _ => reply.delivery,
    };
    Reply { delivery, ..reply }
}

async fn instead(trouble: Trouble) -> Reply {
    match trouble {
        Trouble::Fault(fault) => soap_fault(&fault),
        Trouble::Status(status, media_type, body) => Reply::new(status, media_type, body),
        Trouble::Hang => std::future::pending().await,
        _ => Reply::close(),
    }
}

fn soap_fault(fault: &Fault) -> Reply {
    Reply::new(500, "text/xml", soap::envelope(&fault.soap()))
}

async fn soap_reply(shared: &Arc<Shared>, call: &xml::Element, request: &Request) -> Reply {
    let cookie = request.header("cookie").and_then(|header| header.strip_prefix("vmware_soap_session="));
    let cookie = cookie.map(|quoted| quoted.trim_matches('"'));
    shared.world().note_cookie(cookie);
    let done = if call.name == "WaitForUpdatesEx" {
        match waits::wait(shared, call, cookie).await {
            Ok(content) => Ok(Done::from(content)),
            Err(Trouble::Fault(fault)) => Err(fault),
            Err(other) => return instead(other).await,
        }
    } else {
        let done = shared.world().serve(call, cookie);
        // The call may have changed views, collectors or sessions, so pending waits check again. A search changes
        // nothing.
        if !call.name.starts_with("Find") && !call.name.starts_with("Retrieve") {
            shared.changed.send_replace(());
        }
        done
    };
    let reply = match &done {
        Ok(done) => {
            let name = &call.name;
            let content = format!("<{name}Response xmlns=\"urn:vim25\">{}</{name}Response>", done.content);
            Reply::new(200, "text/xml", soap::envelope(&content))
        }
        Err(fault) => soap_fault(fault),
    };
    // A client without a cookie gets one. Before a login it has no meaning.
    let new_session = done.ok().and_then(|done| done.new_session);
    let anonymous = || cookie.is_none().then(|| format!("{:0>40}", uuid::Uuid::new_v4().simple()));
    let cookie = new_session.or_else(anonymous);
    let quote = if shared.world().is_cookie_bare { "" } else { "\"" };
    match cookie {
        Some(value) => {
            let cookie = format!("vmware_soap_session={quote}{value}{quote}; Path=/; HttpOnly; Secure; ");
            reply.header("Set-Cookie", cookie)
        }
        None => reply,
    }
}
