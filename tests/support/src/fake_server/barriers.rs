//! Holds a write of a fake before its work or before its answer, until a test releases it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::api_proxy::Side;

/// Far longer than a write takes, even while this computer also compiles.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldStage {
    /// The write has not arrived yet.
    Awaited,
    Held,
    Released,
}

/// A hold of one write. The write continues when this is released or dropped.
#[derive(Debug)]
pub struct Hold {
    stage: watch::Sender<HoldStage>,
}

impl Hold {
    /// Waits until the write has arrived at the hold.
    ///
    /// # Panics
    ///
    /// If it has not arrived within a minute.
    pub async fn wait(&self) {
        let began = Instant::now();
        loop {
            let mut stage = self.stage.subscribe();
            let held = stage.wait_for(|stage| *stage == HoldStage::Held);
            match tokio::time::timeout(LIMIT, held).await {
                Ok(held) => return assert!(held.is_ok(), "the fake has ended"),
                // A test may advance the clock of tokio, so the real time decides.
                Err(_) => assert!(began.elapsed() < LIMIT, "no write was held within {LIMIT:?}"),
            }
        }
    }

    /// Returns true if the write is currently held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        *self.stage.borrow() == HoldStage::Held
    }

    /// Lets the write continue.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.stage.send_replace(HoldStage::Released);
    }
}

struct PendingHold {
    /// The operation of the writes that it counts, or `*` for any.
    operation: String,
    /// Number of writes that pass first.
    skip: u32,
    side: Side,
    stage: watch::Sender<HoldStage>,
}

/// The holds that have not caught a write yet.
#[derive(Default)]
pub(crate) struct Holds(Mutex<Vec<PendingHold>>);

impl Holds {
    /// Holds the n-th write of this operation from now on (the next write has n = 1), or of any for `*`.
    pub(crate) fn add(&self, operation: &str, n: u32, side: Side) -> Hold {
        let skip = n.checked_sub(1).expect("the next write is number 1");
        let stage = watch::Sender::new(HoldStage::Awaited);
        let order = PendingHold { operation: operation.to_owned(), skip, side, stage: stage.clone() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        Hold { stage }
    }

    /// Counts a write, and returns its hold if it has one.
    pub(crate) fn claim(&self, operation: &str) -> Option<HeldWrite> {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut met = None;
        orders.retain_mut(|order| {
            if *order.stage.borrow() == HoldStage::Released {
                return false;
            }
            if order.operation != operation && order.operation != "*" {
                return true;
            }
            if order.skip > 0 || met.is_some() {
                order.skip = order.skip.saturating_sub(1);
                return true;
            }
            met = Some(HeldWrite { side: order.side, stage: order.stage.clone() });
            false
        });
        met
    }
}

/// A write that is caught by a hold.
pub(crate) struct HeldWrite {
    side: Side,
    stage: watch::Sender<HoldStage>,
}

impl HeldWrite {
    /// Waits for the release, if the write is held at this side.
    pub(crate) async fn pass(&self, side: Side) {
        if side != self.side {
            return;
        }
        let mut stage = self.stage.subscribe();
        self.stage.send_if_modified(|stage| {
            let is_awaited = *stage == HoldStage::Awaited;
            if is_awaited {
                *stage = HoldStage::Held;
            }
            is_awaited
        });
        drop(stage.wait_for(|stage| *stage == HoldStage::Released).await);
    }
}
