//! Why the clusters of a placement are not known.

use super::selector::ClusterSelectorError;
use crate::api::ClusterProfileReference;

/// Why it is not known what a placement selects. The texts begin with the field in the placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A selector is invalid.
    #[error(transparent)]
    Selector(#[from] ClusterSelectorError),
    /// It selects by properties, and this version can't read those of this ClusterProfile.
    #[error("propertySelector: this version can't read status.properties of ClusterProfile {0}")]
    UnreadableProperties(ClusterProfileReference),
}

/// Why it is not known which clusters a decision names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionError {
    /// The PlacementDecision, as NAMESPACE/NAME, does not exist.
    #[error("PlacementDecision {0} does not exist")]
    NotFound(String),
    /// It is one of several slices. Its scheduler may move clusters to another one.
    #[error("PlacementDecision {slice} is a slice of a decision; set spec.placement.decision.key to {key}")]
    Slice {
        /// The PlacementDecision, as NAMESPACE/NAME.
        slice: String,
        /// The key of the decision.
        key: String,
    },
    /// The reference has neither a key nor a name, or both. A rule refuses that.
    #[error("spec.placement.decision needs either key or name")]
    Unclear,
    /// This version can't read a slice.
    #[error("PlacementDecision {slice}: {why}")]
    Unreadable {
        /// The PlacementDecision, as NAMESPACE/NAME.
        slice: String,
        /// The field, and what is wrong with it.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_field_or_the_decision() {
        let missing = PlacementError::from(ClusterSelectorError::Missing).to_string();
        assert_eq!(missing, "neither clusterSelector nor propertySelector is set");
        let slice = DecisionError::Slice { slice: "n/z".to_owned(), key: "k".to_owned() };
        for (error, expected) in [
            (DecisionError::NotFound("m/x".to_owned()), "PlacementDecision m/x does not exist"),
            (slice, "PlacementDecision n/z is a slice of a decision; set spec.placement.decision.key to k"),
            (DecisionError::Unclear, "spec.placement.decision needs either key or name"),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }
}
