//! A row of the tables of remedies.

use super::model::Advice;

/// What to do about a condition.
pub struct Remedy {
    /// Type of the condition; empty for any.
    pub condition: &'static str,
    /// Reason of the condition; empty for any.
    pub reason: &'static str,
    /// Parts of its message, in order; empty for any.
    pub message: &'static [&'static str],
    /// What to do.
    pub advice: Advice,
}

/// It ends by itself, or once something outside of the resource changes.
pub const fn temporary(
    condition: &'static str,
    reason: &'static str,
    message: &'static [&'static str],
    text: &'static str,
) -> Remedy {
    Remedy { condition, reason, message, advice: Advice { text, can_recover: true } }
}

/// It does not end until somebody acts.
pub const fn permanent(
    condition: &'static str,
    reason: &'static str,
    message: &'static [&'static str],
    text: &'static str,
) -> Remedy {
    Remedy { condition, reason, message, advice: Advice { text, can_recover: false } }
}
