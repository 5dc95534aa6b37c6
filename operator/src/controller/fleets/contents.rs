//! The contents of the revisions of a fleet, computed once for each cluster.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use knative_operator_shared::api::fleet::Template;
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component};
use knative_operator_shared::fleet::overrides::overridden;
use knative_operator_shared::fleet::placement::are_known;
use knative_operator_shared::fleet::selector::{Traits, overriding_properties};
use knative_operator_shared::version::Version;

use knative_operator_fleet::member::{Contents, Wanted};
use knative_operator_fleet::revision::RevisionData;
use knative_operator_fleet::template::{content_with, wanted};

/// What was computed before.
#[derive(Debug, Default)]
pub struct Cache {
    by_cluster: HashMap<ClusterProfileReference, Known>,
    /// Names of the revisions when others were forgotten.
    revisions: Vec<String>,
}

/// Contents for a cluster.
#[derive(Debug)]
struct Known {
    /// The ClusterProfile that they were computed for.
    profile: Option<Arc<ClusterProfile>>,
    /// By revision and component, of which there are few.
    contents: Vec<(String, Component, Option<Arc<Wanted>>)>,
}

impl Known {
    fn get(&self, revision: &str, component: Component) -> Option<&Option<Arc<Wanted>>> {
        let found = self.contents.iter().find(|(of, kind, _)| of == revision && *kind == component);
        found.map(|(_, _, wanted)| wanted)
    }
}

/// The contents of the revisions of a fleet.
pub struct CachedContents<'a> {
    /// The revisions.
    pub revisions: BTreeMap<&'a str, &'a RevisionData>,
    /// The ClusterProfiles.
    pub profiles: &'a HashMap<ClusterProfileReference, Arc<ClusterProfile>>,
    /// The versions in the release bundle.
    versions: &'a [(Component, Vec<Version>)],
    /// Contents that were computed before, and are those of these ClusterProfiles.
    cache: &'a Mutex<Cache>,
}

impl<'a> CachedContents<'a> {
    /// The contents of `revisions`, with those in `cache` that are the same for `profiles`. A
    /// decision asks many times about each cluster, so profiles are compared once.
    pub fn new(
        revisions: BTreeMap<&'a str, &'a RevisionData>,
        profiles: &'a HashMap<ClusterProfileReference, Arc<ClusterProfile>>,
        versions: &'a [(Component, Vec<Version>)],
        cache: &'a Mutex<Cache>,
    ) -> Self {
        let contents = Self { revisions, profiles, versions, cache };
        contents.cache().by_cluster.retain(|cluster, known| {
            let profile = profiles.get(cluster);
            let is_same = contents.are_of(known, profile);
            // The next comparison is that of the pointers.
            known.profile = profile.cloned();
            is_same
        });
        contents
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was computed for revisions that are gone, and for others than `clusters`.
    pub fn forget_others(&self, clusters: &HashSet<ClusterProfileReference>) {
        let mut cache = self.cache();
        let Cache { by_cluster, revisions } = &mut *cache;
        if !revisions.iter().eq(self.revisions.keys()) {
            *revisions = self.revisions.keys().map(|name| (*name).to_owned()).collect();
            for known in by_cluster.values_mut() {
                known.contents.retain(|(revision, ..)| self.revisions.contains_key(revision.as_str()));
            }
        }
        if by_cluster.len() > clusters.len() {
            by_cluster.retain(|cluster, _| clusters.contains(cluster));
        }
    }

    /// The template of `component` for `cluster` in `revision`, with overrides.
    pub fn template(
        &self,
        revision: &str,
        cluster: &ClusterProfileReference,
        component: Component,
    ) -> Option<Template> {
        let data = self.revisions.get(revision)?;
        let traits = Traits::of(self.profiles.get(cluster).map(Arc::as_ref));
        // Overrides of a revision were checked before it was stored.
        let mut template = overridden(data.template(component)?, &data.overrides, component, &traits).ok()?;
        data.pin(component, &mut template);
        Some(template)
    }

    /// Whether what is `known` is that of `profile`: its labels are the same, and the properties
    /// that overrides select by.
    fn are_of(&self, known: &Known, profile: Option<&Arc<ClusterProfile>>) -> bool {
        if let (Some(known), Some(profile)) = (&known.profile, profile)
            && Arc::ptr_eq(known, profile)
        {
            return true;
        }
        let (before, after) = (Traits::of(known.profile.as_deref()), Traits::of(profile.map(Arc::as_ref)));
        let differing = before.differing_properties(&after);
        let selects = |data: &&RevisionData| !overriding_properties(&data.overrides).is_disjoint(&differing);
        before.labels == after.labels && (differing.is_empty() || !self.revisions.values().any(selects))
    }
}

impl Contents for CachedContents<'_> {
    fn of(&self, revision: &str, cluster: &ClusterProfileReference, component: Component) -> Option<Arc<Wanted>> {
        // One that is not known may become known.
        let data = *self.revisions.get(revision)?;
        if let Some(wanted) =
            self.cache().by_cluster.get(cluster).and_then(|known| known.get(revision, component)).cloned()
        {
            return wanted;
        }
        let mut wanted = self.template(revision, cluster, component).map(|template| wanted(&template));
        if let Some(wanted) = &mut wanted {
            wanted.content = content_with(wanted.content, data.components());
        }
        let wanted = wanted.map(Arc::new);
        let new = || Known { profile: self.profiles.get(cluster).cloned(), contents: Vec::new() };
        let mut cache = self.cache();
        let known = cache.by_cluster.entry(cluster.clone()).or_insert_with(new);
        known.contents.push((revision.to_owned(), component, wanted.clone()));
        wanted
    }

    fn knows(&self, revision: &str) -> bool {
        self.revisions.contains_key(revision)
    }

    fn is_known(&self, revision: &str, cluster: &ClusterProfileReference) -> bool {
        let profile = self.profiles.get(cluster).map(Arc::as_ref);
        self.revisions.get(revision).is_some_and(|data| {
            // A template that an override makes unreadable is none that the revision lacks.
            let mut components = data.components();
            are_known(&data.overrides, profile) && components.all(|one| self.of(revision, cluster, one).is_some())
        })
    }

    fn versions(&self, component: Component) -> &[Version] {
        self.versions.iter().find(|(other, _)| *other == component).map_or(&[], |(_, versions)| versions.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn content_follows_the_properties_that_overrides_select_by() {
        let data: RevisionData = serde_json::from_value(json!({
            "serving": {"spec": {"version": "1.22"}},
            "overrides": [{"propertySelector": {"matchLabels": {"region": "eu"}}, "serving": {"spec": {"config": {"a": {"b": "c"}}}}}],
        }))
        .unwrap();
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "n".to_owned() };
        let cache: Mutex<Cache> = Mutex::default();
        let of = |region: &str, memory: &str| {
            let properties = json!([{"name": "region", "value": region}, {"name": "memory", "value": memory}]);
            let profile: ClusterProfile = serde_json::from_value(
                json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {}, "status": {"properties": properties}}),
            )
            .unwrap();
            let profiles = HashMap::from([(cluster.clone(), Arc::new(profile))]);
            let revisions = BTreeMap::from([("r", &data)]);
            let had = cache.lock().unwrap().by_cluster.contains_key(&cluster);
            let contents = CachedContents::new(revisions, &profiles, &[], &cache);
            let is_known = had.then(|| cache.lock().unwrap().by_cluster.contains_key(&cluster));
            (is_known, contents.of("r", &cluster, Component::Serving).unwrap().content)
        };
        let eu = of("eu", "1Gi").1;
        assert_eq!(of("eu", "2Gi"), (Some(true), eu), "another property is no change");
        let (known, us) = of("us", "2Gi");
        assert!(known == Some(false) && us != eu, "{known:?}");
        assert_eq!(of("eu", "2Gi"), (Some(false), eu));
    }

    #[test]
    fn content_is_known_with_the_properties_that_its_overrides_select_by() {
        let selecting = |selector: &str| -> RevisionData {
            let change = json!({selector: {"matchLabels": {"region": "eu"}}, "serving": {"spec": {}}});
            serde_json::from_value(json!({"serving": {"spec": {}}, "overrides": [change]})).unwrap()
        };
        let cluster = |name: &str| ClusterProfileReference { name: name.to_owned(), namespace: "n".to_owned() };
        let profile = |properties: Value| -> Arc<ClusterProfile> {
            let profile =
                json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {}, "status": {"properties": properties}});
            Arc::new(serde_json::from_value(profile).unwrap())
        };
        let with = profile(json!([{"name": "region", "value": "us"}]));
        let profiles = HashMap::from([(cluster("with"), with), (cluster("without"), profile(json!([])))]);
        let (by_property, by_label) = (selecting("propertySelector"), selecting("clusterSelector"));
        let cache = Mutex::default();
        let revisions = BTreeMap::from([("property", &by_property), ("label", &by_label)]);
        let contents = CachedContents::new(revisions, &profiles, &[], &cache);
        let known =
            |revision: &str| ["with", "without", "missing"].map(|name| contents.is_known(revision, &cluster(name)));
        assert_eq!((known("property"), known("label")), ([true, false, false], [true, true, false]));
        assert_eq!(known("other"), [false; 3]);
    }

    #[test]
    fn content_is_computed_once_and_shared() {
        let data = RevisionData { serving: Some(Template::default()), ..RevisionData::default() };
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "n".to_owned() };
        let (cache, profiles) = (Mutex::default(), HashMap::new());
        let of = || {
            let contents = CachedContents::new([("r", &data)].into(), &profiles, &[], &cache);
            contents.of("r", &cluster, Component::Serving).unwrap()
        };
        assert!(Arc::ptr_eq(&of(), &of()), "also in the next pass");
    }

    #[test]
    fn revision_that_becomes_known_has_its_content() {
        let data = RevisionData { serving: Some(Template::default()), ..RevisionData::default() };
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "n".to_owned() };
        let (cache, profiles) = (Mutex::default(), HashMap::new());
        let pass = |revisions: &[&'static str]| {
            let revisions = revisions.iter().map(|revision| (*revision, &data)).collect();
            let contents = CachedContents::new(revisions, &profiles, &[], &cache);
            let of = |revision| contents.of(revision, &cluster, Component::Serving).is_some();
            let known = (of("old"), of("new"));
            contents.forget_others(&HashSet::from([cluster.clone()]));
            known
        };
        assert_eq!((pass(&["new"]), pass(&["new"])), ((false, true), (false, true)));
        assert_eq!((pass(&["new", "old"]), pass(&["new"])), ((true, true), (false, true)));
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let data = RevisionData { serving: Some(Template::default()), ..RevisionData::default() };
        let clusters =
            ["a", "b"].map(|name| ClusterProfileReference { name: name.to_owned(), namespace: "n".to_owned() });
        let (cache, profiles) = (Mutex::default(), HashMap::new());
        let contents = |revisions: &[&'static str]| {
            CachedContents::new(revisions.iter().map(|revision| (*revision, &data)).collect(), &profiles, &[], &cache)
        };
        let both = contents(&["old", "new"]);
        for cluster in &clusters {
            assert!(both.of("old", cluster, Component::Serving).is_some());
            assert!(both.of("new", cluster, Component::Serving).is_some());
        }
        contents(&["new"]).forget_others(&HashSet::from([clusters[0].clone()]));
        let cache = cache.lock().unwrap();
        let known: Vec<_> =
            cache.by_cluster[&clusters[0]].contents.iter().map(|(revision, ..)| revision.as_str()).collect();
        assert_eq!((cache.by_cluster.len(), known), (1, vec!["new"]));
    }

    #[test]
    fn contents_follow_the_labels_of_the_cluster() {
        let data = json!({
            "serving": {"spec": {"config": {"a": {"b": "c"}}}},
            "overrides": [{"clusterSelector": {"matchLabels": {"tier": "canary"}},
                "serving": {"spec": {"config": {"a": {"b": "d"}}}}}],
        });
        let data: RevisionData = serde_json::from_value(data).unwrap();
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "n".to_owned() };
        let cache = Mutex::default();
        let with = |labels: Option<Value>| {
            let profile = |labels: Value| {
                let profile = json!({"metadata": {"name": "a", "namespace": "n", "labels": labels}, "spec": {}});
                (cluster.clone(), Arc::new(serde_json::from_value::<ClusterProfile>(profile).unwrap()))
            };
            let profiles: HashMap<_, _> = labels.map(profile).into_iter().collect();
            let contents = CachedContents::new([("r", &data)].into(), &profiles, &[], &cache);
            contents.of("r", &cluster, Component::Serving).unwrap().content
        };
        let gone = with(None);
        for (labels, is_canary) in [
            (Some(json!({"tier": "canary"})), true),
            (Some(json!({"tier": "canary"})), true),
            (Some(json!({"tier": "prod"})), false),
            (None, false),
        ] {
            assert_eq!(with(labels.clone()) != gone, is_canary, "{labels:?}");
            assert_eq!(cache.lock().unwrap().by_cluster[&cluster].contents.len(), 1, "{labels:?}");
        }
    }
}
