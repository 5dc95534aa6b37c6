//! The next writes toward a revision, and repairs.

use knative_operator_shared::way;

use super::member::{Change, Contents, Member, Write};
use super::outcome::Outcome;

impl Member {
    /// Whether it was Ready before the update to `revision` that is in progress, or is now if none
    /// is. The operator may have stopped after it wrote one of the resources. If it was Ready
    /// before another update, which this one replaces before its end, that is what counts.
    fn was_ready(&self, revision: &str, contents: &impl Contents) -> bool {
        let started = self.children.iter().filter_map(|child| {
            let (applied, wanted) = (child.applied.as_ref()?, self.wanted(child, revision, contents));
            let is_content = wanted.is_some_and(|wanted| wanted.content == applied.content);
            match applied.outcome {
                Some(Outcome::Progressing { was_ready }) => {
                    (was_ready || applied.revision == revision && is_content).then_some(was_ready)
                }
                _ => None,
            }
        });
        started
            .reduce(|all, was_ready| all && was_ready)
            .unwrap_or_else(|| self.is_new() && self.is_vouched_for || self.is_ready())
    }

    /// The next writes toward `revision`; none if its content for the cluster is not known, since
    /// what it seems to lack would be deleted. A resource that is on its way between minor versions
    /// is written again once it is Ready.
    pub fn writes(&self, revision: &str, contents: &impl Contents) -> Vec<Write> {
        let mut writes = Vec::new();
        if !contents.is_known(revision, &self.cluster) {
            return writes;
        }
        let begun = Outcome::Progressing { was_ready: self.was_ready(revision, contents) };
        for child in self.children.iter() {
            let wanted = self.wanted(child, revision, contents);
            if child.conflict.is_some() || child.has(wanted.as_deref()) {
                continue;
            }
            let change = match (&child.applied, wanted) {
                (Some(applied), _) if applied.is_terminating => continue,
                (Some(_), None) => Change::Delete,
                (None, None) => continue,
                (None, Some(wanted)) => {
                    let outcome = begun.clone();
                    let version = wanted.version.clone();
                    Change::Apply { revision: revision.to_owned(), previous: None, version, outcome }
                }
                (Some(applied), Some(wanted)) => {
                    let is_step = applied.revision == revision && applied.content == wanted.content;
                    if is_step && applied.ready.is_err() {
                        continue;
                    }
                    let available = contents.versions(child.component);
                    let version = way::next_step(applied.installed.as_ref(), wanted.version.as_deref(), available);
                    if is_step && applied.version == version {
                        continue;
                    }
                    let previous = applied.before(revision);
                    // A failure counts until the last step succeeds.
                    let failed = applied.outcome.clone().filter(|_| is_step && applied.failure().is_some());
                    let outcome = failed.unwrap_or_else(|| begun.clone());
                    Change::Apply { revision: revision.to_owned(), previous, version, outcome }
                }
            };
            writes.push(Write { cluster: self.cluster.clone(), component: child.component, change });
        }
        writes
    }

    /// Repairs of resources that somebody else changed.
    pub fn repairs(&self) -> impl Iterator<Item = Write> {
        let drifted = self.children.iter().filter_map(|child| Some((child, child.applied.as_ref()?)));
        drifted.filter(|(_, applied)| applied.has_drifted && !applied.is_terminating).map(|(child, applied)| {
            let (revision, version) = (applied.revision.clone(), applied.version.clone());
            Write {
                cluster: self.cluster.clone(),
                component: child.component,
                change: Change::Repair { revision, version },
            }
        })
    }
}
