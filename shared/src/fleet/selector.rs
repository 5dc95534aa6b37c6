//! Label selectors.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;

/// The selector that `given` describes.
///
/// # Errors
///
/// What is wrong with it. A missing key is read as an empty one, which no label has, so that
/// `NotIn` would select everything.
pub fn selector(given: LabelSelector) -> Result<Selector, String> {
    if given.match_expressions.iter().flatten().any(|expression| expression.key.is_empty()) {
        return Err("an expression has no key".to_owned());
    }
    Selector::try_from(given).map_err(|error| error.to_string())
}
