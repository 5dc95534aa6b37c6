//! The contents of the revisions of a fleet, computed once for each cluster.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use knative_operator_shared::api::fleet::Template;
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component};
use knative_operator_shared::fleet::overrides::overridden;
use knative_operator_shared::version::Version;

use knative_operator_fleet::member::{self, Wanted};
use knative_operator_fleet::revision::RevisionData;
use knative_operator_fleet::template::{content_with, wanted};

/// Labels of ClusterProfiles, as a digest, and contents by revision, cluster and component.
pub type Cache = HashMap<(String, ClusterProfileReference, Component), (u64, Option<Wanted>)>;

/// The contents of the revisions of a fleet.
pub struct Contents<'a> {
    /// The revisions.
    pub revisions: BTreeMap<&'a str, &'a RevisionData>,
    /// The ClusterProfiles.
    pub profiles: &'a HashMap<ClusterProfileReference, Arc<ClusterProfile>>,
    /// The versions in the release bundle.
    pub versions: &'a [(Component, Vec<Version>)],
    /// Contents that were computed before.
    pub cache: &'a Mutex<Cache>,
}

impl Contents<'_> {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was computed for revisions that are gone, and for others than `clusters`.
    pub fn forget_others(&self, clusters: &[ClusterProfileReference]) {
        let clusters: HashSet<_> = clusters.iter().collect();
        self.cache().retain(|(revision, cluster, _), _| {
            self.revisions.contains_key(revision.as_str()) && clusters.contains(cluster)
        });
    }

    fn labels(&self, cluster: &ClusterProfileReference) -> Option<&BTreeMap<String, String>> {
        self.profiles.get(cluster)?.metadata.labels.as_ref()
    }

    /// The template of `component` for `cluster` in `revision`, with overrides.
    pub fn template(
        &self,
        revision: &str,
        cluster: &ClusterProfileReference,
        component: Component,
    ) -> Option<Template> {
        let data = self.revisions.get(revision)?;
        let no_labels = BTreeMap::new();
        let labels = self.labels(cluster).unwrap_or(&no_labels);
        // Overrides of a revision were checked before it was stored.
        let mut template = overridden(data.template(component)?, &data.overrides, component, labels).ok()?;
        data.pin(component, &mut template);
        Some(template)
    }
}

impl member::Contents for Contents<'_> {
    fn of(&self, revision: &str, cluster: &ClusterProfileReference, component: Component) -> Option<Wanted> {
        let mut hasher = DefaultHasher::new();
        self.labels(cluster).hash(&mut hasher);
        let labels = hasher.finish();
        let key = (revision.to_owned(), cluster.clone(), component);
        if let Some((_, wanted)) = self.cache().get(&key).filter(|(known, _)| *known == labels) {
            return wanted.clone();
        }
        let mut wanted = self.template(revision, cluster, component).map(|template| wanted(&template));
        if let (Some(wanted), Some(data)) = (&mut wanted, self.revisions.get(revision)) {
            wanted.content = content_with(wanted.content, data.components());
        }
        self.cache().insert(key, (labels, wanted.clone()));
        wanted
    }

    fn knows(&self, revision: &str) -> bool {
        self.revisions.contains_key(revision)
    }

    fn versions(&self, component: Component) -> &[Version] {
        self.versions.iter().find(|(other, _)| *other == component).map_or(&[], |(_, versions)| versions.as_slice())
    }
}
