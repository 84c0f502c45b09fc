//! What the `Dockerfile` puts into the container image.

mod dockerfile;

pub use dockerfile::Stage;
