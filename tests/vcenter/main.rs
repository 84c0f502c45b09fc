//! vcenter tests.
