//! Warnings about a resource that stay true: they are published once, and not after each change.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time after which a note is published again, if it is still true after a change: that for which
/// Kubernetes keeps events by default.
const REPEAT: Duration = Duration::from_secs(3600);

/// The warnings about a resource.
#[derive(Debug, Default)]
pub struct Warnings {
    /// Whether the status says that Deployments change, whose former replicas are available, which
    /// is no warning.
    pub is_rolling: bool,
    /// What they were last about: generation and version, or why it can't be read.
    pub subject: Option<String>,
    published: HashMap<String, Instant>,
}

impl Warnings {
    /// Those of `notes` that are to be published at `now`: a change of something else has no events
    /// about them.
    pub fn due(&mut self, notes: Vec<String>, now: Instant) -> Vec<String> {
        self.published.retain(|note, at| notes.contains(note) && now.saturating_duration_since(*at) < REPEAT);
        let due: Vec<String> = notes.into_iter().filter(|note| !self.published.contains_key(note)).collect();
        self.published.extend(due.iter().cloned().map(|note| (note, now)));
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_that_stays_true_is_published_again_after_an_hour() {
        let (mut warnings, start) = (Warnings::default(), Instant::now());
        let (one, both) = (vec!["a".to_owned()], vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(warnings.due(one.clone(), start), one);
        assert!(warnings.due(one.clone(), start).is_empty());
        assert_eq!(warnings.due(both.clone(), start), ["b"]);
        assert_eq!(warnings.due(both, start + REPEAT), ["a", "b"]);
        assert!(warnings.due(Vec::new(), start + REPEAT).is_empty());
        assert_eq!(warnings.due(one.clone(), start + REPEAT), one, "it is true again");
    }
}
