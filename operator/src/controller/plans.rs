//! What was rendered lately. Most resources of a fleet ask for the same: they share it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::version::Version;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::plan::Rendered;
use crate::release::Release;
use crate::render::{self, RenderError, Settings};

/// What a rendering depends on, but for the release.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    component: Component,
    version: String,
    namespace: String,
    spec: [u8; 32],
}

/// What was rendered and is still used, with what it was made of.
#[derive(Debug, Default)]
pub struct Plans(Mutex<HashMap<Key, (Release, Weak<Rendered>)>>);

impl Plans {
    /// What `resource` asks for, rendered anew only if nobody uses it.
    pub fn get(
        &self,
        resource: &Knative,
        version: &Version,
        release: &Release,
        settings: &Settings,
    ) -> Result<Arc<Rendered>, RenderError> {
        let key = key(resource, version);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, rendered)) = known.get(&key)
            && of.is(release)
            && let Some(rendered) = rendered.upgrade()
        {
            return Ok(rendered);
        }
        known.retain(|_, (_, rendered)| rendered.strong_count() > 0);
        // Whoever asks for the same meanwhile waits, and shares it.
        let rendered = Arc::new(render::objects(resource, version, release.objects(), settings)?);
        known.insert(key, (release.clone(), Arc::downgrade(&rendered)));
        Ok(rendered)
    }
}

fn key(resource: &Knative, version: &Version) -> Key {
    let spec = match resource {
        Knative::Serving(serving) => serde_json::to_value(&serving.spec),
        Knative::Eventing(eventing) => serde_json::to_value(&eventing.spec),
    };
    // A spec was read from JSON, so it can be written as JSON.
    let mut spec = spec.unwrap_or_default();
    if let Value::Object(fields) = &mut spec {
        fields.remove("clusterProfileRef");
    }
    Key {
        component: resource.component(),
        version: version.to_string(),
        namespace: resource.target_namespace().to_owned(),
        spec: Sha256::digest(spec.to_string()).into(),
    }
}
