//! apiserver tests.
