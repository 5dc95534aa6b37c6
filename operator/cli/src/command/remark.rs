//! Remarks about fields of the resources in files.

use std::fmt;

/// A remark about a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Path of the field.
    pub field: String,
    why: String,
}

impl Remark {
    /// The remark `why` about `field`.
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}
