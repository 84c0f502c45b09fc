//! Serves HTTPS for the fakes of this process: the ports they listen on, and HTTP by hand.

pub(crate) mod http;
pub(crate) mod place;
