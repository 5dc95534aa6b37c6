//! Cache of rendered objects. Most resources of a fleet have equal specs, and share them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::version::Version;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::release::Release;
use crate::render::plan::Rendered;
use crate::render::{self, RenderError, Settings};

/// Inputs of a rendering, apart from the release.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CacheKey {
    component: Component,
    version: String,
    namespace: String,
    spec: [u8; 32],
}

/// Rendered objects that are in use, with their release.
#[derive(Debug, Default)]
pub struct RenderCache(Mutex<HashMap<CacheKey, (Release, Weak<Rendered>)>>);

impl RenderCache {
    /// Renders the objects of `resource`, or returns those in use.
    pub fn get(
        &self,
        resource: &Knative,
        version: &Version,
        release: &Release,
        settings: &Settings,
    ) -> Result<Arc<Rendered>, RenderError> {
        let key = cache_key(resource, version);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, rendered)) = known.get(&key)
            && of.is_same(release)
            && let Some(rendered) = rendered.upgrade()
        {
            return Ok(rendered);
        }
        known.retain(|_, (_, rendered)| rendered.strong_count() > 0);
        // Concurrent callers wait and share the result.
        let rendered = Arc::new(render::objects(resource, version, release.objects(), settings)?);
        known.insert(key, (release.clone(), Arc::downgrade(&rendered)));
        Ok(rendered)
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
