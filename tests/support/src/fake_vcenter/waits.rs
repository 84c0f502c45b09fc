//! `WaitForUpdatesEx`: blocks until there is an update, the timeout expires, or the test ends the wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::fault::{Fault, Trouble};
use super::inventory::Ref;
use super::soap::unknown;
use super::xml::Element;
use super::{Shared, World};

/// Counts a pending wait until it ends.
struct Pending {
    shared: Arc<Shared>,
    is_counted: bool,
}

impl Pending {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.world().counts.pending_waits += 1;
        Self { shared: Arc::clone(shared), is_counted: true }
    }

    /// Ends the count while `world` is locked: an interrupt that follows cannot reach this wait.
    fn end(&mut self, world: &mut World) {
        world.counts.pending_waits -= u32::from(std::mem::take(&mut self.is_counted));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.end(&mut shared.world());
    }
}

/// Returns the content of the answer, or the fault that replaces it.
pub(super) async fn wait(shared: &Arc<Shared>, call: &Element, cookie: Option<&str>) -> Result<String, Trouble> {
    let this = call.child("_this").map(Element::reference).unwrap_or_default();
    let options = call.child("options");
    let number = |name: &str| options.and_then(|options| options.text_of(name).parse::<i64>().ok());
    let (seconds, objects) = (number("maxWaitSeconds").unwrap_or(1_800), number("maxObjectUpdates").unwrap_or(100));
    if seconds < 0 || objects <= 0 {
        return Err(Trouble::Fault(Fault::new("InvalidArgument").field("invalidProperty", "options")));
    }
    let interrupts = shared.world().interrupts;
    let turn = {
        let mut world = shared.world();
        let session = cookie.and_then(|cookie| world.sessions.get_mut(cookie));
        let session = session.ok_or_else(|| Trouble::Fault(Fault::not_authenticated()))?;
        let collector = session.collectors.get(&this.id).ok_or_else(|| Trouble::Fault(unknown(&this)))?;
        Arc::clone(&collector.turn)
    };
    let mut pending = Pending::new(shared);
    let mut changed = shared.changed.subscribe();
    let _turn = loop {
        tokio::select! {
            turn = turn.lock() => break turn,
            _ = changed.changed() => interrupted(&shared.world(), interrupts)?,
        }
    };
    let cancels = cancels(shared, cookie, &this);
    let deadline = Instant::now() + Duration::from_secs(seconds.unsigned_abs());
    loop {
        changed.borrow_and_update();
        if self::cancels(shared, cookie, &this) != cancels {
            return Err(Trouble::Fault(Fault::new("RequestCanceled")));
        }
        let is_over = Instant::now() >= deadline;
        {
            let mut world = shared.world();
            interrupted(&world, interrupts)?;
            let content = world.updates(cookie, &this, call.text_of("version"), objects)?;
            if content.is_some() || is_over {
                pending.end(&mut world);
                return Ok(content.unwrap_or_default());
            }
        }
        // At the deadline, too, the wait ends above.
        let _ = timeout_at(deadline, changed.changed()).await;
    }
}

fn interrupted(world: &World, since: u64) -> Result<(), Trouble> {
    match &world.interrupt {
        Some(trouble) if world.interrupts != since => Err(trouble.clone()),
        _ => Ok(()),
    }
}

/// Returns how often waits of this collector were cancelled, or `None` once it is destroyed.
fn cancels(shared: &Shared, cookie: Option<&str>, this: &Ref) -> Option<u32> {
    let world = shared.world();
    Some(world.sessions.get(cookie?)?.collectors.get(&this.id)?.cancels)
}

impl World {
    fn updates(
        &mut self,
        cookie: Option<&str>,
        this: &Ref,
        version: &str,
        objects: i64,
    ) -> Result<Option<String>, Trouble> {
        let Self { sessions, inventory, page_size, .. } = self;
        let session = cookie.and_then(|cookie| sessions.get_mut(cookie));
        let session = session.ok_or_else(|| Trouble::Fault(Fault::not_authenticated()))?;
        let super::session::Session { collectors, views, .. } = session;
        let collector = collectors.get_mut(&this.id).ok_or_else(|| Trouble::Fault(unknown(this)))?;
        let begun = std::time::Instant::now();
        let page = usize::try_from(objects).unwrap_or(usize::MAX).min(*page_size);
        let updates = collector.updates(version, page, |spec| spec.select(inventory, views)).map_err(Trouble::Fault);
        self.counts.busy += begun.elapsed();
        updates
    }
}
