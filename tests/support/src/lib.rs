//! Starts and stops the real components that tests and the demo use.
