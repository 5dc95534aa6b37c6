//! Why a spec can't be rendered.

use std::fmt::Display;

use knative_operator_rules::Violation;

/// Why a spec can't be rendered.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum RenderError {
    /// A transform failed.
    #[error("{object}: {why}")]
    Transform {
        /// The object.
        object: String,
        /// The reason.
        why: TransformError,
    },
    /// A patch of the spec can't be applied.
    #[error("{0}")]
    Patch(Violation),
}

/// Why an object of the release can't be changed.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum TransformError {
    /// A field of the spec does not fit it, or one of its own fields can't be changed.
    #[error("{field}: {why}")]
    Field {
        /// Path of the field.
        field: String,
        /// The reason.
        why: String,
    },
    /// The field with this path is not a mapping.
    #[error("{0} is not a mapping")]
    NotMapping(String),
    /// A field is not an integer.
    #[error("{field} is not an integer but {value}")]
    NotInteger {
        /// Path of the field.
        field: String,
        /// Its value.
        value: String,
    },
    /// It is a ConfigMap without this key.
    #[error("data has no {0}")]
    NoKey(&'static str),
}

impl TransformError {
    /// The field with the path `field` can't be applied or changed.
    pub fn field(field: impl Into<String>, why: &dyn Display) -> Self {
        Self::Field { field: field.into(), why: why.to_string() }
    }
}
