//! Pure: the announcement that is printed before anything is sent.

use crate::options::WriteRequest;
use crate::servers::{Server, Servers};
use crate::{nsx, vcenter};

/// Returns the announcement: for each server, the planned actions and the number of calls.
#[must_use]
pub fn announcement(servers: &Servers, write: Option<&WriteRequest>) -> String {
    let what = if write.is_some() { "writes to NSX" } else { "changes nothing in them" };
    let mut text = format!("This program reads from these servers, and {what}:\n\n");
    for server in &servers.all {
        let (title, address) = (server.title(), server.address());
        text.push_str(&match untested(server) {
            Some(why) => format!("  {title} ({address}): nothing, because {why}\n"),
            None => {
                let (most, tidying, what) = match server {
                    Server::Vcenter(_) => (vcenter::MOST_CALLS, vcenter::LOGOUT_CALLS, vcenter::WHAT),
                    Server::Nsx(_) => (nsx::most_calls(write), nsx::tidying_calls(write), nsx::WHAT),
                };
                let note = server.login_note().map(|note| format!(". {note}")).unwrap_or_default();
                format!("  {title} ({address}): at most {most} calls, and {tidying} to tidy up. {what}{note}\n")
            }
        });
    }
    text.push_str(&write.map(written).unwrap_or_default());
    text.push_str(
        "\nIt logs in with the credentials of the file. A login that is rejected ends the test of that server and is not\n\
         tried again. It does not share the login throttle of the daemon: where the daemon runs, use another account, so that\n\
         the two together do not lock one. User and password are not printed; the result has no names of servers or objects.\n",
    );
    text
}

/// Returns the list of objects that will be written, and how they are removed.
fn written(write: &WriteRequest) -> String {
    let objects: String = nsx::announced(write).iter().map(|object| format!("    {object}\n")).collect();
    format!(
        "\nIn NSX it makes these objects, changes the pool, and removes all of them, also after an error or Ctrl-C. Nothing else \
         is changed.\nAn object that exists already is left as it is, and nothing is written then:\n\n{objects}\n\
         Most of the calls wait for states. A run without trouble needs 60 to 120 and takes a few minutes; the wait for each \
         state ends\nafter 4 minutes, and the removal after 10. If the session ends before that, the removal logs in once \
         more. What is then left\nis listed with the commands that remove it.\n"
    )
}

/// Returns the reason why this server is not tested, if it is not.
fn untested(server: &Server) -> Option<&str> {
    match server {
        Server::Vcenter(vcenter) => vcenter.login.as_ref().err().map(String::as_str),
        Server::Nsx(nsx) => nsx.login.as_ref().err().map(String::as_str),
    }
}
