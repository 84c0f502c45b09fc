//! Pure: turns what the process knows of its objects into the report of `plan`.

mod collection;
mod nodes;
mod observer_plan;
mod parts;
mod routes;
mod services;

pub(super) use collection::answer;
pub(super) use observer_plan::{DetachedPlanner, PlanSettings};
pub(super) use parts::Slices;
