//! Who asks at the secure port and what they may: built from the settings.

use super::Error;
use super::parts::Parts;
use super::settings::Settings;
use super::stages::Stages;
use crate::kubernetes::access::{Delegated, Metrics, Permissions, TokenReviews};
use crate::runtime::admin::access::{Authenticator, Authorizer};
use std::sync::Arc;

/// Who says who asks, and who says what they may.
pub type Access = (Arc<dyn Authenticator>, Arc<dyn Authorizer>);

/// Builds both, and starts what keeps them up to date.
pub async fn prepare(settings: &Settings, parts: &Parts, _stages: &mut Stages) -> Result<Access, Error> {
    let metrics = Metrics::default();
    metrics.register(parts.metrics.registry())?;
    let client = || parts.clients.auxiliary.clone();
    let tokens = TokenReviews::new(client(), settings.authentication.cache, &metrics);
    let permissions = Permissions::new(client(), &settings.authorization, metrics.clone());
    Ok((Arc::new(Delegated::new(tokens, metrics)), Arc::new(permissions)))
}
