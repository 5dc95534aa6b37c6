//! The answer to the question whether a user has a permission.

/// Whether a permission is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is.
    Allowed,
    /// It is not.
    Denied,
    /// The API server could not be asked.
    Unknown,
}
