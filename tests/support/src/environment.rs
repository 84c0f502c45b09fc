//! Reads the environment variables of a run: its duration and its seed.

/// Returns the variable, unless it is empty: `make` sets it to an empty value if it has none.
#[must_use]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Returns the variable as a number.
///
/// # Panics
///
/// If it is not a number.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    variable(name).map(|text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// Returns the variable as a seed; `random` makes a new one.
///
/// # Panics
///
/// If it is neither `random` nor a number.
#[must_use]
pub fn seed(name: &str) -> Option<u64> {
    match variable(name)?.as_str() {
        "random" => Some(uuid::Uuid::new_v4().as_u64_pair().0),
        _ => number(name),
    }
}
