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
type Rendering = Option<(Release, Weak<Rendered>)>;

/// Locked while the objects are rendered, so that concurrent callers share the result. Those that
/// wait for it have no thread.
type Slot = Arc<tokio::sync::Mutex<Rendering>>;

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
        let mut known = slot.lock().await;
        if let Some((of, rendered)) = known.as_ref()
            && let Some(rendered) = rendered.upgrade().filter(|_| of.is_same(release))
        {
            return Ok(rendered);
        }
        // A spec with many patches takes long.
        let render = || knative_operator_render::objects(resource, version, release.objects(), settings);
        let rendered = Arc::new(compute(resource.namespace(), render).await?);
        *known = Some((release.clone(), Arc::downgrade(&rendered)));
        Ok(rendered)
    }

    fn slot(&self, key: CacheKey) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        let is_used = |slot: &Slot| {
            let known = slot.try_lock();
            known.is_ok_and(|known| known.as_ref().is_some_and(|(_, rendered)| rendered.strong_count() > 0))
        };
        // Others that hold a slot are about to fill it.
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || is_used(slot));
        Arc::clone(slots.entry(key).or_default())
    }
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

    #[test]
    fn rendering_keeps_no_worker_from_other_work() {
        let resource: Knative = Knative::Serving(
            serde_json::from_value(json!({"apiVersion": "operator.knative.dev/v1beta1",
            "kind": "KnativeServing", "metadata": {"namespace": "n", "name": "s"}, "spec": {}}))
            .unwrap(),
        );
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
