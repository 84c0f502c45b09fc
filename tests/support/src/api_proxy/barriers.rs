//! Holds writes to Nodes in a proxy, so that the interval between two writes lasts as long as a test needs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::sync::watch;

use crate::eventually;

/// Far longer than a write takes, even while this machine also compiles.
const LIMIT: Duration = Duration::from_secs(60);

/// One of the two writes of an initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The first write: the addresses.
    Status,
    /// The second write: provider ID, labels and taints.
    Node,
}

/// The side of the API server at which a write waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before the write. The API server has not received it.
    Request,
    /// After the write. The API server has done it, and the client has no answer.
    Answer,
}

/// A write that waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Name of the Node.
    pub node: String,
    /// Status of the API server's answer, once there is one.
    pub status: Option<StatusCode>,
}

/// Makes writes wait until it is released.
#[derive(Debug)]
pub struct Hold {
    write: Write,
    side: Side,
    held: Mutex<Vec<Held>>,
    released: watch::Sender<bool>,
}

impl Hold {
    pub(super) fn new(write: Write, side: Side) -> Arc<Self> {
        Arc::new(Self { write, side, held: Mutex::default(), released: watch::Sender::new(false) })
    }

    /// Waits until this many writes wait. On the answer side the API server has answered them then.
    pub async fn wait_for(&self, count: usize) {
        let is_held = |held: &&Held| self.side == Side::Request || held.status.is_some();
        eventually(&format!("{count} writes are held"), LIMIT, async || match self.held().clone() {
            held if held.iter().filter(is_held).count() >= count => Ok(()),
            held => Err(format!("{held:?}")),
        })
        .await;
    }

    /// Releases the waiting writes. Returns them once the API server has answered all of them.
    pub async fn release(&self) -> Vec<Held> {
        self.released.send_replace(true);
        eventually("all that was held is answered", LIMIT, async || match self.held().clone() {
            held if held.iter().all(|held| held.status.is_some()) => Ok(held),
            held => Err(format!("{held:?}")),
        })
        .await
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the place of this request among the waiting writes, if it must wait.
    pub(super) fn place(self: &Arc<Self>, method: &Method, path: &str) -> Option<Place> {
        let rest = path.strip_prefix("/api/v1/nodes/")?;
        let (node, write) = match rest.split_once('/') {
            None => (rest, Write::Node),
            Some((node, "status")) => (node, Write::Status),
            Some(_) => return None,
        };
        if method != Method::PATCH || write != self.write {
            return None;
        }
        let mut held = self.held();
        held.push(Held { node: node.to_owned(), status: None });
        Some(Place { hold: Arc::clone(self), index: held.len() - 1 })
    }
}

/// The place of one waiting write.
pub(super) struct Place {
    hold: Arc<Hold>,
    index: usize,
}

impl Place {
    /// Waits for the release, if writes wait at this side.
    pub(super) async fn pass(&self, side: Side) {
        if side == self.hold.side {
            drop(self.hold.released.subscribe().wait_for(|released| *released).await);
        }
    }

    pub(super) fn answered(&self, status: StatusCode) {
        self.hold.held()[self.index].status = Some(status);
    }
}
