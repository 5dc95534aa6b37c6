//! The violations of a resource, of which there may be thousands.

use std::collections::HashMap;

use super::rule::Violation;

/// Maximum number of violations that are kept of a resource, which may have as many as values.
pub const MAX_VIOLATIONS: usize = 1000;

/// Removes the errors that were there `before`, from `violations`. Both may have thousands.
pub fn remove_existing(violations: &mut Vec<Violation>, before: &[Violation]) {
    let mut known: HashMap<_, usize> = HashMap::new();
    for violation in before.iter().filter(|violation| violation.is_error()) {
        *known.entry(violation.identity()).or_default() += 1;
    }
    // One for one: a violation that occurs twice now and once before is new.
    let mut are_new = Vec::with_capacity(violations.len());
    for violation in &*violations {
        let count = known.get_mut(&violation.identity()).filter(|count| **count > 0);
        are_new.push(count.is_none());
        if let Some(count) = count {
            *count -= 1;
        }
    }
    drop(known);
    let mut are_new = are_new.into_iter();
    violations.retain(|_| are_new.next().unwrap_or(true));
}

/// Keeps [`MAX_VIOLATIONS`] of `violations`, errors first.
pub fn limit(violations: &mut Vec<Violation>) {
    if violations.len() > MAX_VIOLATIONS {
        violations.sort_by_key(|violation| !violation.is_error());
        violations.truncate(MAX_VIOLATIONS);
        violations.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::READABLE;
    use super::super::rule::Severity;
    use super::*;

    #[test]
    fn errors_are_kept_first() {
        let warning = Violation { severity: Severity::Warning, ..READABLE.at("a", "b", "c") };
        let mut mixed = vec![warning; 2000];
        mixed.push(READABLE.at("a", "b", "c"));
        limit(&mut mixed);
        assert!(mixed.len() == MAX_VIOLATIONS && mixed[0].is_error());
    }

    #[test]
    fn violations_are_compared_one_for_one() {
        let at = |field: &str| READABLE.at(field, "is wrong", "correct it");
        let mut violations = vec![at("spec.a[0].b"), at("spec.a[1].b"), at("spec.c")];
        remove_existing(&mut violations, &[at("spec.a[7].b")]);
        assert_eq!(violations, [at("spec.a[1].b"), at("spec.c")]);
    }
}
