//! Who asks at the secure port and what they may: built from the settings.

use super::Error;
use super::parts::Parts;
use super::settings::Settings;
use super::stages::Stages;
use crate::kubernetes::token_review::{AnyUser, TokenReviews};
use crate::runtime::admin::access::{Authenticator, Authorizer};
use std::sync::Arc;

/// Who says who asks, and who says what they may.
pub type Access = (Arc<dyn Authenticator>, Arc<dyn Authorizer>);

/// Builds both, and starts what keeps them up to date.
pub async fn prepare(_settings: &Settings, parts: &Parts, _stages: &mut Stages) -> Result<Access, Error> {
    Ok((Arc::new(TokenReviews::new(parts.clients.auxiliary.clone())), Arc::new(AnyUser)))
}
