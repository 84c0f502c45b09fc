//! What a run is asked for in the environment: how long, and with which seed.

/// The variable, unless it is empty, which is what `make` sets without a value.
#[must_use]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The same as a number.
///
/// # Panics
///
/// When it is none.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    variable(name).map(|text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// The same as a seed, which `random` makes a new one.
///
/// # Panics
///
/// When it is neither that nor a number.
#[must_use]
pub fn seed(name: &str) -> Option<u64> {
    match variable(name)?.as_str() {
        "random" => Some(uuid::Uuid::new_v4().as_u64_pair().0),
        _ => number(name),
    }
}
