//! Pure: turns what the process knows of its objects into the report of `plan`.

mod collection;
mod detached;
mod nodes;
mod routes;
mod services;

pub(super) use collection::answer;
pub(super) use detached::PlanSettings;
