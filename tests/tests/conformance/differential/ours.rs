//! Our validation and rendering, without processes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use knative_operator_objects::Owner;
use knative_operator_objects::plan::Plan;
use knative_operator_release::{Bundle, Downloads, HostPolicy, Library, select_version};
use knative_operator_render::{Settings, objects};
use knative_operator_rules as rules;
use knative_operator_rules::{Catalog, RuleContext, Violation};
use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::defaults;
use serde_json::Value;

use super::compare::Object;

/// Number of objects to remember.
const MAXIMUM: usize = 8192;

/// What becomes of a resource.
pub enum Outcome {
    /// The webhook refuses it.
    Refused(Vec<Violation>),
    /// It isn't rendered.
    Failed(String),
    /// Its objects.
    Rendered(Vec<Arc<Object>>),
}

/// Our side.
pub struct Ours {
    library: Library,
    catalog: Catalog,
    runtime: tokio::runtime::Runtime,
    known: HashMap<String, Arc<Object>>,
}

impl Ours {
    /// With the releases in `folder`.
    pub fn new(folder: &Path) -> Self {
        knative_operator_runtime::install_crypto();
        let bundle = Bundle::open(folder.to_owned());
        let versions = Component::ALL.map(|c| (c.kind().to_owned(), bundle.versions(c).unwrap()));
        let catalog = Catalog { versions: versions.into(), ..Catalog::default() };
        let downloads = Downloads::new(Duration::from_secs(1), HostPolicy::any()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self {
            library: Library { bundle, downloads, archive: None, keeps_installed: false },
            catalog,
            runtime,
            known: HashMap::new(),
        }
    }

    /// Validates and renders `resource`.
    pub fn outcome(&mut self, mut resource: Value) -> Outcome {
        let component = Component::of_kind(resource["kind"].as_str().unwrap()).unwrap();
        defaults::set_defaults(component, &mut resource);
        let resource = match rules::parse(component, &resource) {
            Ok(resource) => resource,
            Err(violation) => return Outcome::Refused(vec![violation]),
        };
        let context = RuleContext { catalog: Some(&self.catalog), ..RuleContext::default() };
        let mut violations = rules::validate(&resource, &context);
        violations.retain(Violation::is_error);
        if !violations.is_empty() {
            return Outcome::Refused(violations);
        }
        self.rendered(&resource).map_or_else(Outcome::Failed, Outcome::Rendered)
    }

    /// Renders `resource`, which is valid.
    pub fn rendered(&mut self, resource: &Knative) -> Result<Vec<Arc<Object>>, String> {
        let plan = self.plan(resource)?;
        let items = plan.items().iter().map(|item| {
            let digest = plan.digest(item).to_string();
            if let Some(known) = self.known.get(&digest) {
                return Arc::clone(known);
            }
            let object = Arc::new(Object::new(&plan.rendered_object_of(item)));
            if self.known.len() < MAXIMUM {
                self.known.insert(digest, Arc::clone(&object));
            }
            object
        });
        Ok(items.collect())
    }

    fn plan(&self, resource: &Knative) -> Result<Plan, String> {
        let version = select_version(&self.library.bundle, resource, false).map_err(|e| e.to_string())?;
        let release = self.runtime.block_on(self.library.release(resource, &version)).map_err(|e| e.to_string())?;
        let settings = Settings { kubernetes_min_version: None };
        let rendered = objects(resource, &version, release.objects(), &settings).map_err(|e| e.to_string())?;
        Ok(Plan::new(Arc::new(rendered), &Owner::of(resource, "1")))
    }
}
