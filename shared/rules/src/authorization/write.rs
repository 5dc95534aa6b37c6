//! The creation or the update of a resource.

use serde_json::Value;

use knative_operator_shared::api::{Component, Kind};

/// Stands for what is missing.
static NOTHING: Value = Value::Null;

/// The creation or the update of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Write<'v> {
    /// Kind of the resource.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: &'v str,
    /// The resource to be stored.
    pub new: &'v Value,
    /// The stored resource; `None` if it is created.
    pub old: Option<&'v Value>,
}

impl<'v> Write<'v> {
    /// The stored resource; null if it is created.
    pub fn before(&self) -> &'v Value {
        self.old.unwrap_or(&NOTHING)
    }

    /// Whether it changes on which clusters a fleet installs what: its placement or components.
    pub fn changes_clusters(&self) -> bool {
        let components = |spec: &Value| Component::ALL.map(|component| spec[component.word()].is_null());
        let (new, old) = (&self.new["spec"], &self.before()["spec"]);
        self.kind == Kind::Fleet && (new["placement"] != old["placement"] || components(new) != components(old))
    }

    /// Whether it creates a resource for the hub itself.
    pub fn is_new_and_local(&self) -> bool {
        let is_component = matches!(self.kind, Kind::Component(_));
        self.old.is_none() && is_component && self.new["spec"]["clusterProfileRef"].is_null()
    }
}
