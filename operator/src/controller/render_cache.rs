//! Cache of rendered objects. Most resources of a fleet have equal specs, and share them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use knative_operator_runtime::compute::compute;
use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::version::Version;
use serde_json::Value;
use sha2::{Digest, Sha256};

use knative_operator_objects::plan::Rendered;
use knative_operator_release::Release;
use knative_operator_render::{RenderError, Settings};

/// Inputs of a rendering, apart from the release.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CacheKey {
    component: Component,
    version: String,
    namespace: String,
    spec: [u8; 32],
}

/// Rendered objects, with their release.
#[derive(Debug)]
struct Rendering {
    release: Release,
    rendered: Weak<Rendered>,
    /// Notes about settings without effect, once somebody has asked for them.
    ignored: Option<Arc<[String]>>,
}

/// Locked while the objects are rendered, so that concurrent callers share the result.
type Slot = Arc<Mutex<Option<Rendering>>>;

/// Rendered objects that are in use. Few specs are rendered at the same time: see [`compute`].
#[derive(Debug, Default)]
pub struct RenderCache(Mutex<HashMap<CacheKey, Slot>>);

impl RenderCache {
    /// Renders the objects of `resource`, or returns those in use.
    pub async fn get(
        &self,
        resource: &Knative,
        version: &Version,
        release: &Release,
        settings: &Settings,
    ) -> Result<Arc<Rendered>, RenderError> {
        let slot = self.slot(cache_key(resource, version));
        if let Some(rendered) = slot.try_lock().ok().and_then(|known| in_use(known.as_ref(), release)) {
            return Ok(rendered);
        }
        // A spec with many patches takes long. Locked in the turn of the namespace: one that waits
        // for its turn keeps none waiting that has an equal spec.
        let render = || -> Result<Arc<Rendered>, RenderError> {
            let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(rendered) = in_use(known.as_ref(), release) {
                return Ok(rendered);
            }
            let rendered = knative_operator_render::objects(resource, version, release.objects(), settings)?;
            let rendered = Arc::new(rendered);
            *known = Some(Rendering { release: release.clone(), rendered: Arc::downgrade(&rendered), ignored: None });
            Ok(rendered)
        };
        compute(resource.namespace(), render).await
    }

    /// Notes about settings of `resource` without effect in `release`: those that are known, or
    /// what `find` finds.
    pub async fn ignored(
        &self,
        (resource, version): (&Knative, &Version),
        release: &Release,
        find: impl FnOnce() -> Vec<String>,
    ) -> Arc<[String]> {
        let slot = self.slot(cache_key(resource, version));
        let is_same = |of: &Rendering| of.release.is_same(release) && of.release.warnings == release.warnings;
        let known = |of: &Option<Rendering>| of.as_ref().filter(|of| is_same(of)).and_then(|of| of.ignored.clone());
        if let Some(ignored) = slot.try_lock().ok().and_then(|of| known(&of)) {
            return ignored;
        }
        // Not locked: what is rendered is available meanwhile. In its turn, another one may have
        // found them.
        let find = || {
            let lock = || slot.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = known(&lock()) {
                return found;
            }
            let found: Arc<[String]> = find().into();
            if let Some(of) = lock().as_mut().filter(|of| is_same(of)) {
                of.ignored = Some(Arc::clone(&found));
            }
            found
        };
        compute(resource.namespace(), find).await
    }

    fn slot(&self, key: CacheKey) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        let is_used = |slot: &Slot| {
            let known = slot.try_lock();
            known.is_ok_and(|known| known.as_ref().is_some_and(|known| known.rendered.strong_count() > 0))
        };
        // Others that hold a slot are about to fill it.
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || is_used(slot));
        Arc::clone(slots.entry(key).or_default())
    }
}

/// The objects that are `known` and in use, if they are of `release`.
fn in_use(known: Option<&Rendering>, release: &Release) -> Option<Arc<Rendered>> {
    known.filter(|known| known.release.is_same(release))?.rendered.upgrade()
}

fn cache_key(resource: &Knative, version: &Version) -> CacheKey {
    let spec = match resource {
        Knative::Serving(serving) => serde_json::to_value(&serving.spec),
        Knative::Eventing(eventing) => serde_json::to_value(&eventing.spec),
    };
    // The spec was parsed from JSON, so it serializes.
    let mut spec = spec.unwrap_or_default();
    if let Value::Object(fields) = &mut spec {
        fields.remove("clusterProfileRef");
    }
    CacheKey {
        component: resource.component(),
        version: version.to_string(),
        namespace: resource.target_namespace().to_owned(),
        spec: Sha256::digest(spec.to_string()).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    /// A resource in `namespace`, whose installation is in the canonical one.
    fn resource(namespace: &str) -> Knative {
        let spec = json!({"clusterProfileRef": {"name": "a", "namespace": "f"}});
        let resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"namespace": namespace, "name": "s"}, "spec": spec});
        Knative::Serving(serde_json::from_value(resource).unwrap())
    }

    #[test]
    fn namespace_that_waits_for_its_turn_keeps_none_with_an_equal_spec_waiting() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
        let ((started, starts), mut ends) = (mpsc::channel(), Vec::new());
        for _ in 0..2 {
            let ((end, ended), started) = (mpsc::channel::<()>(), started.clone());
            let work = move || {
                let _ = started.send(());
                let _ = ended.recv();
            };
            runtime.spawn(compute("others", work));
            ends.push(end);
        }
        // All places are taken.
        assert!((0..2).all(|_| starts.recv_timeout(Duration::from_secs(30)).is_ok()));
        let (cache, done) = (RenderCache::default(), Mutex::new(Vec::new()));
        let get = async |namespace: &'static str| {
            let (resource, version) = (resource(namespace), "1.22.0".parse::<Version>().unwrap());
            let _ = cache.get(&resource, &version, &Release::default(), &Settings::default()).await;
            done.lock().unwrap().push(namespace);
        };
        let free_one = async { drop(ends.pop()) };
        let (first, second) = (compute("a", || ()), compute("a", || ()));
        runtime.block_on(async { futures::join!(first, second, get("a"), get("b"), free_one) });
        assert_eq!(*done.lock().unwrap(), ["b", "a"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn settings_without_effect_are_found_once_for_equal_specs() {
        let serving = |cluster: &str, namespace: &str| {
            let spec = json!({"clusterProfileRef": {"name": cluster, "namespace": "f"}, "version": "1.22"});
            let resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
                "metadata": {"namespace": namespace, "name": "s"}, "spec": spec});
            Knative::Serving(serde_json::from_value(resource).unwrap())
        };
        let (cache, version, release) = (RenderCache::default(), "1.22.0".parse().unwrap(), Release::default());
        let rendered = cache.get(&serving("a", "n"), &version, &release, &Settings::default()).await.unwrap();
        let ignored = async |cluster: &str, found: &str| {
            cache.ignored((&serving(cluster, "n"), &version), &release, || vec![found.to_owned()]).await
        };
        assert_eq!(
            (&*ignored("a", "one").await, &*ignored("b", "two").await),
            (&["one".to_owned()][..], &["one".to_owned()][..])
        );
        drop(rendered);
    }

    #[test]
    fn rendering_keeps_no_worker_from_other_work() {
        let resource = resource("n");
        let version: Version = "1.22.0".parse().unwrap();
        let (cache, (done, is_done)) = (Arc::new(RenderCache::default()), mpsc::channel());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let slot = cache.slot(cache_key(&resource, &version));
        let rendering = slot.try_lock().unwrap();
        let of_cache = Arc::clone(&cache);
        let waiting = runtime.spawn(async move {
            of_cache.get(&resource, &version, &Release::default(), &Settings::default()).await.is_ok()
        });
        // The only worker takes this task after the one before.
        runtime.spawn(async move { done.send(()) });
        is_done.recv_timeout(Duration::from_secs(30)).expect("the worker waits for the rendering");
        drop(rendering);
        runtime.block_on(waiting).unwrap();
    }

    #[test]
    fn renderings_of_different_specs_do_not_wait_for_each_other() {
        let key = |version: &str| CacheKey {
            component: Component::Serving,
            version: version.to_owned(),
            namespace: "n".to_owned(),
            spec: [0; 32],
        };
        let cache = RenderCache::default();
        let first = cache.slot(key("1"));
        let rendering = first.try_lock().unwrap();
        assert!(cache.slot(key("2")).try_lock().is_ok());
        // Another caller for the same spec waits for its result, also after others came.
        assert!(cache.slot(key("1")).try_lock().is_err());
        drop(rendering);
    }
}
