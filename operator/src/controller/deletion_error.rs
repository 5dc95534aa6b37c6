//! Why a deletion does not make progress.

use knative_operator_runtime::error_text;

use super::go_inventory::GoInventoryError;
use super::resolve::ResolveFailure;
use knative_operator_apply::error::ApplyError;
use knative_operator_apply::store_error::StoreError;

/// Why a deletion does not make progress.
pub enum DeletionError {
    /// The cluster can't be used.
    Unresolved(ResolveFailure),
    /// A step failed; for people.
    Failed(String),
    /// The fleet of the resource keeps it; for people.
    Kept(String),
}

impl From<ApplyError> for DeletionError {
    fn from(error: ApplyError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<GoInventoryError> for DeletionError {
    fn from(error: GoInventoryError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<StoreError> for DeletionError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error_text(&error))
    }
}
