//! Pure: whether the process at the other end of a connection is trusted, by its credentials from the kernel.

/// Reason for closing a connection before a byte is read or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PeerRefusal {
    #[error("the kernel reports no credentials of the other process")]
    NoCredentials,
    #[error("the other process is in another PID namespace")]
    OtherNamespace,
    #[error("the other process runs as user {0}")]
    OtherUser(u32),
    #[error("the other process is not the one with the selected id")]
    OtherProcess,
}

/// Checks the credentials (`SO_PEERCRED`) of the other process: the effective user has to be the same, and the process
/// has to be visible in the own PID namespace. The kernel reports the process id 0 for a process that is not visible.
/// The user alone is not enough, because all pods in the host network share the sockets, and may share the user id.
pub(super) fn check(own_user: u32, user: u32, process: Option<i32>) -> Result<(), PeerRefusal> {
    // First the namespace, so that only a visible process can cause a message about its user.
    if process.is_none_or(|process| process <= 0) {
        return Err(PeerRefusal::OtherNamespace);
    }
    if user != own_user {
        return Err(PeerRefusal::OtherUser(user));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_needs_the_same_user_and_a_visible_process() {
        let cases = [
            ("same user, visible", 1001, Some(17), Ok(())),
            ("the first process", 1001, Some(1), Ok(())),
            ("another user", 1002, Some(17), Err(PeerRefusal::OtherUser(1002))),
            ("root", 0, Some(17), Err(PeerRefusal::OtherUser(0))),
            ("another namespace", 1001, Some(0), Err(PeerRefusal::OtherNamespace)),
            ("an invalid process", 1001, Some(-1), Err(PeerRefusal::OtherNamespace)),
            ("no process", 1001, None, Err(PeerRefusal::OtherNamespace)),
            ("another namespace and user", 0, Some(0), Err(PeerRefusal::OtherNamespace)),
        ];
        for (case, user, process, expected) in cases {
            assert_eq!(check(1001, user, process), expected, "{case}");
        }
        assert_eq!(check(0, 0, Some(17)), Ok(()), "root with root");
    }
}
