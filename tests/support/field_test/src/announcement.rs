//! Pure: what is said before anything is sent.

use crate::servers::{Server, Servers};
use crate::{nsx, vcenter};

/// What will be done to which servers, with how many calls.
#[must_use]
pub fn announcement(servers: &Servers) -> String {
    let mut text = "This program reads from these servers, and changes nothing in them:\n\n".to_owned();
    for server in &servers.all {
        let (title, address) = (server.title(), server.address());
        text.push_str(&match untested(server) {
            Some(why) => format!("  {title} ({address}): nothing, because {why}\n"),
            None => {
                let (most, what) = match server {
                    Server::Vcenter(_) => (vcenter::MOST_CALLS, vcenter::WHAT),
                    Server::Nsx(_) => (nsx::MOST_CALLS, nsx::WHAT),
                };
                let note = server.login_note().map(|note| format!(". {note}")).unwrap_or_default();
                format!("  {title} ({address}): at most {most} calls. {what}{note}\n")
            }
        });
    }
    text.push_str(
        "\nIt logs in with the credentials of the file. A login that is rejected ends the test of that server and is not\n\
         tried again. It does not share the login throttle of the daemon: where the daemon runs, use another account, so that\n\
         the two together do not lock one. User and password are not printed; the result has no names of servers or objects.\n",
    );
    text
}

/// Why this server is not tested, if it is not.
fn untested(server: &Server) -> Option<&str> {
    match server {
        Server::Vcenter(vcenter) => vcenter.login.as_ref().err().map(String::as_str),
        Server::Nsx(nsx) => nsx.login.as_ref().err().map(String::as_str),
    }
}
