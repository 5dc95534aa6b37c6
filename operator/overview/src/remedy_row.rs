//! A row of the tables of remedies.

use super::advice::Advice;
use super::names::Names;

/// What to do about a condition.
pub struct Remedy {
    /// Type of the condition.
    pub condition: &'static str,
    /// Reason of the condition; empty for any.
    pub reason: &'static str,
    /// Parts of its message, in order; empty for any.
    pub message: &'static [&'static str],
    /// What to do: an imperative sentence, with placeholders for [`Names`]. Its commands follow a
    /// colon, and end it or a clause.
    pub text: &'static str,
    /// Whether the problem can end without it.
    pub can_recover: bool,
}

impl Remedy {
    /// What to do about the resource with `names`.
    pub fn advice(&self, names: &Names<'_>) -> Advice {
        let general = Names::default().fill(self.text);
        Advice { text: names.fill(self.text), general, can_recover: self.can_recover }
    }
}

/// It ends by itself, or once something outside of the resource changes.
pub const fn temporary(
    condition: &'static str,
    reason: &'static str,
    message: &'static [&'static str],
    text: &'static str,
) -> Remedy {
    Remedy { condition, reason, message, text, can_recover: true }
}

/// It does not end until somebody acts.
pub const fn permanent(
    condition: &'static str,
    reason: &'static str,
    message: &'static [&'static str],
    text: &'static str,
) -> Remedy {
    Remedy { condition, reason, message, text, can_recover: false }
}
