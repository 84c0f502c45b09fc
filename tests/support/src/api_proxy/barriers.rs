//! Writes to Nodes that a proxy holds back: a moment between two writes lasts as long as a test wants.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::sync::watch;

use crate::eventually;

/// Far more than a write takes, on a machine that also compiles.
const LIMIT: Duration = Duration::from_secs(60);

/// Which of the two writes of an initialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The addresses: the first one.
    Status,
    /// Provider ID, labels and taints: the second one.
    Node,
}

/// Where a write is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The server has not seen it.
    Request,
    /// The server has done it, and the sender does not know.
    Answer,
}

/// A write that was held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The node's name.
    pub node: String,
    /// What the API server answered, once it has.
    pub status: Option<StatusCode>,
}

/// Holds writes until it is released.
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

    /// Waits until so many writes are held; those whose answer is held have been answered then.
    pub async fn wait_for(&self, count: usize) {
        let is_held = |held: &&Held| self.side == Side::Request || held.status.is_some();
        eventually(&format!("{count} writes are held"), LIMIT, async || match self.held().clone() {
            held if held.iter().filter(is_held).count() >= count => Ok(()),
            held => Err(format!("{held:?}")),
        })
        .await;
    }

    /// Releases the held writes, and returns them once the API server has answered all of them.
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

    /// The place among what is held, if this request is to be.
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

/// Of one write among those held.
pub(super) struct Place {
    hold: Arc<Hold>,
    index: usize,
}

impl Place {
    /// Waits for the release, if this is the side at which writes are held.
    pub(super) async fn pass(&self, side: Side) {
        if side == self.hold.side {
            drop(self.hold.released.subscribe().wait_for(|released| *released).await);
        }
    }

    pub(super) fn answered(&self, status: StatusCode) {
        self.hold.held()[self.index].status = Some(status);
    }
}
