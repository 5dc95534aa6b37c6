//! What a fleet rolls out, and where: the content and the names of its revisions, and the digest
//! that approvals are bound to.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::fleet::{FleetOverride, Template};
use crate::api::{Component, KnativeFleetSpec};
use crate::name::MAX_NAME;
use crate::version::Version;

/// Maximum number of earlier revisions that a fleet keeps. The operator has all of them in memory.
pub const MAX_HISTORY: i32 = 100;
/// Length of the digest in the name of a revision, in bytes. The content is compared, too.
const NAME_DIGEST: usize = 16;
/// The same, of names that an earlier version gave.
const EARLIER_NAME_DIGEST: usize = 5;
/// What the newest version is asked for with, in the table of versions.
const NEWEST: &str = "latest";

/// What a revision contains: the part of the spec that resources are made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RevisionData {
    /// Template of the KnativeServing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving: Option<Template>,
    /// Template of the KnativeEventing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eventing: Option<Template>,
    /// Overrides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<FleetOverride>,
    /// The versions that were rolled out for those that the spec asks for without a patch number,
    /// by kind. So a newer release bundle is another revision.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, BTreeMap<String, String>>,
}

impl RevisionData {
    /// The content of `spec`.
    pub fn of(spec: &KnativeFleetSpec) -> Self {
        let KnativeFleetSpec { serving, eventing, overrides, .. } = spec.clone();
        Self { serving, eventing, overrides, versions: BTreeMap::new() }
    }

    /// The template of `component`.
    pub fn template(&self, component: Component) -> Option<&Template> {
        match component {
            Component::Serving => self.serving.as_ref(),
            Component::Eventing => self.eventing.as_ref(),
        }
    }

    /// The components that it has a template of.
    pub fn components(&self) -> impl Iterator<Item = Component> {
        Component::ALL.into_iter().filter(|component| self.template(*component).is_some())
    }

    /// The versions without a patch number that resources of `component` ask for.
    pub fn floating(&self, component: Component) -> Vec<String> {
        let Some(template) = self.template(component) else { return Vec::new() };
        let patches = self.overrides.iter().filter_map(|change| asked(change.patch(component).get("spec")?));
        let all = [template.spec.get("version").unwrap_or(&Value::Null)].into_iter().chain(patches);
        let mut all: Vec<String> = all
            .filter(|asked| asked.is_null() || asked.is_string())
            .filter(|asked| Version::is_floating(asked.as_str()))
            .map(|asked| normalized(asked.as_str()).to_owned())
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// The version that was resolved for `asked`, if that has no patch number.
    pub fn version(&self, component: Component, asked: Option<&str>) -> Option<&str> {
        self.versions.get(component.kind())?.get(normalized(asked)).map(String::as_str)
    }

    /// Sets the resolved version in `template` of `component`, with overrides. Own manifests have
    /// the version that they are given.
    pub fn pin(&self, component: Component, template: &mut Template) {
        let manifests = template.spec.get("manifests").and_then(Value::as_array);
        let asked = template.spec.get("version").and_then(Value::as_str);
        if manifests.is_some_and(|manifests| !manifests.is_empty()) && asked.is_some_and(Version::is_explicit) {
            return;
        }
        if let Some(version) = self.version(component, asked) {
            template.spec.insert("version".to_owned(), json!(version));
        }
    }

    /// The content with the versions that were rolled out, for a spec that returns to it.
    #[must_use]
    pub fn pinned(&self) -> Self {
        let mut pinned = self.clone();
        pinned.versions.clear();
        for (component, template) in
            [(Component::Serving, pinned.serving.as_mut()), (Component::Eventing, pinned.eventing.as_mut())]
        {
            template.into_iter().for_each(|template| self.pin(component, template));
        }
        pinned.overrides = self.overrides.iter().flat_map(|change| self.pinned_override(change)).collect();
        pinned
    }

    /// `change` with the versions that were rolled out. One that removes the spec needs another one
    /// after it.
    fn pinned_override(&self, change: &FleetOverride) -> Vec<FleetOverride> {
        let mut pinned = change.clone();
        let (cluster_selector, property_selector) = (change.cluster_selector.clone(), change.property_selector.clone());
        let mut after = FleetOverride { cluster_selector, property_selector, ..FleetOverride::default() };
        for (component, patch, rest) in [
            (Component::Serving, &mut pinned.serving, &mut after.serving),
            (Component::Eventing, &mut pinned.eventing, &mut after.eventing),
        ] {
            match patch.get_mut("spec") {
                Some(Value::Null) => {
                    let version = self.version(component, None).map(|version| json!({"version": version}));
                    rest.extend(version.map(|spec| ("spec".to_owned(), spec)));
                }
                Some(spec) => {
                    let Some(asked) = spec.get_mut("version") else { continue };
                    if let Some(version) = self.version(component, asked.as_str()) {
                        *asked = json!(version);
                    }
                }
                None => {}
            }
        }
        let is_empty = after.serving.is_empty() && after.eventing.is_empty();
        std::iter::once(pinned).chain((!is_empty).then_some(after)).collect()
    }

    /// Name of the revision with this content of the fleet called `fleet` with `uid`.
    pub fn name(&self, fleet: &str, uid: &str) -> String {
        let digest = Sha256::digest(format!("{uid}\n{}", json!(self)));
        let longest = MAX_NAME - 2 * NAME_DIGEST - 1;
        let readable = fleet.get(..longest).unwrap_or(fleet).trim_end_matches(['-', '.']);
        format!("{readable}-{}", hex(&digest[..NAME_DIGEST]))
    }

    /// Whether `name` is that of the revision, given by this version or an earlier one.
    pub fn has_name(&self, name: &str, fleet: &str, uid: &str) -> bool {
        name == self.name(fleet, uid) || name == self.earlier_name(fleet)
    }

    /// Its name in version 0.2.0 and earlier. Many contents have it.
    pub fn earlier_name(&self, fleet: &str) -> String {
        format!("{fleet}-{}", hex(&Sha256::digest(json!(self).to_string())[..EARLIER_NAME_DIGEST]))
    }
}

/// Digest of what a fleet with `spec` rolls out, and where: templates, overrides, placement and
/// stages.
pub fn digest(spec: &KnativeFleetSpec) -> String {
    let KnativeFleetSpec { placement, serving, eventing, overrides, rollout, .. } = spec;
    let stages = &rollout.stages;
    let content = json!({"placement": placement, "serving": serving, "eventing": eventing, "overrides": overrides, "stages": stages});
    format!("sha256:{}", hex(&Sha256::digest(content.to_string())))
}

/// The version that the patch `spec` asks for. One that removes the spec removes the version.
fn asked(spec: &Value) -> Option<&Value> {
    if spec.is_null() { Some(spec) } else { spec.get("version") }
}

/// `asked` as it is in the table of versions.
fn normalized(asked: Option<&str>) -> &str {
    asked.filter(|asked| Version::is_explicit(asked)).unwrap_or(NEWEST)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn spec(patch: &Value) -> KnativeFleetSpec {
        let mut spec = json!({
            "placement": {"clusterSelector": {"matchLabels": {"env": "prod"}}},
            "serving": {"spec": {"version": "1.22", "config": {"b": {}, "a": {}}}},
            "rollout": {"stages": [{"name": "prod", "approval": "Required"}]},
        });
        json_patch::merge(&mut spec, patch);
        serde_json::from_value(spec).unwrap()
    }

    fn data(version: &str) -> RevisionData {
        RevisionData::of(&spec(&json!({"serving": {"spec": {"version": version}}})))
    }

    #[test]
    fn equal_content_is_the_same_revision() {
        let reordered: Template =
            serde_json::from_str(r#"{"spec": {"config": {"a": {}, "b": {}}, "version": "1.22"}}"#).unwrap();
        let other = RevisionData { serving: Some(reordered), ..RevisionData::default() };
        assert_eq!(data("1.22").name("prod", "1"), other.name("prod", "1"));
        assert_ne!(data("1.22").name("prod", "1"), data("1.23").name("prod", "1"));
        assert_ne!(data("1.22").name("prod", "1"), data("1.22").name("prod", "2"), "another fleet of this name");
    }

    #[test]
    fn name_is_valid_and_has_a_long_digest() {
        let name = data("1.22").name("prod", "1");
        assert_eq!((name.len(), &name[..5]), (5 + 32, "prod-"));
        let long = data("1.22").name(&format!("{}.{}", "a".repeat(219), "b".repeat(33)), "1");
        assert!(long.len() <= MAX_NAME && long.starts_with(&format!("{}-", "a".repeat(219))), "{long}");
        assert!(data("1.22").has_name(&name, "prod", "1"));
        assert!(!data("1.22").has_name(&name, "prod", "2") && !data("1.23").has_name(&name, "prod", "1"));
    }

    /// The name must not change: stored revisions have it.
    #[test]
    fn name_of_an_earlier_version_is_known() {
        let data = RevisionData::of(&spec(&json!({"serving": {"spec": {"config": null}}})));
        let text = r#"{"serving":{"metadata":{},"spec":{"version":"1.22"}}}"#;
        assert_eq!(json!(data).to_string(), text);
        let expected = format!("prod-{}", hex(&Sha256::digest(text)[..5]));
        assert_eq!(data.earlier_name("prod"), expected);
        assert!(data.has_name(&expected, "prod", "1") && !data.has_name(&expected, "test", "1"));
    }

    #[test]
    fn floating_versions_are_pinned() {
        let change = |version: Value| json!({"clusterSelector": {}, "serving": {"spec": {"version": version}}});
        let patch = json!({"eventing": {"spec": {}}, "overrides": [change(json!("1.21")), change(json!("1.20.3")), change(Value::Null)]});
        let mut data = RevisionData::of(&spec(&patch));
        assert_eq!(data.floating(Component::Serving), ["1.21", "1.22", "latest"]);
        assert_eq!(data.floating(Component::Eventing), ["latest"]);
        let name = data.name("prod", "1");
        data.versions =
            serde_json::from_value(json!({"KnativeServing": {"1.21": "1.21.4", "1.22": "1.22.1"}})).unwrap();
        assert_ne!(data.name("prod", "1"), name, "another revision");
        let pinned = json!(data.pinned());
        assert_eq!(pinned["serving"]["spec"]["version"], "1.22.1");
        assert_eq!(pinned["overrides"][0]["serving"]["spec"]["version"], "1.21.4");
        assert_eq!(pinned["overrides"][1]["serving"]["spec"]["version"], "1.20.3");
        assert_eq!(pinned["eventing"]["spec"], json!({}));
        let mut own = data.serving.clone().unwrap();
        own.spec.insert("manifests".to_owned(), json!([{"URL": "a"}]));
        let before = own.clone();
        data.pin(Component::Serving, &mut own);
        assert_eq!(own, before);
    }

    #[test]
    fn override_without_a_spec_asks_for_the_newest_version() {
        let change = json!({"clusterSelector": {}, "serving": {"spec": null}});
        let mut spec = spec(&json!({"serving": {"spec": {"version": "1.22.1"}}}));
        // A merge patch would drop the null.
        spec.overrides = vec![serde_json::from_value(change).unwrap()];
        let mut data = RevisionData::of(&spec);
        assert_eq!(data.floating(Component::Serving), ["latest"]);
        data.versions = serde_json::from_value(json!({"KnativeServing": {"latest": "1.23.0"}})).unwrap();
        let mut template = json!(data.serving);
        json_patch::merge(&mut template, &Value::Object(data.overrides[0].patch(Component::Serving).clone()));
        let mut template: Template = serde_json::from_value(template).unwrap();
        data.pin(Component::Serving, &mut template);
        assert_eq!(template.spec["version"], "1.23.0");
        let pinned = json!(data.pinned());
        assert_eq!(pinned["overrides"][0]["serving"], json!({"spec": null}));
        assert_eq!(pinned["overrides"][1]["serving"], json!({"spec": {"version": "1.23.0"}}));
    }

    #[test]
    fn digest_is_of_what_is_rolled_out_and_where() {
        let changes = [
            json!({}),
            json!({"serving": {"spec": {"version": "1.23"}}}),
            json!({"eventing": {"spec": {}}}),
            json!({"overrides": [{"clusterSelector": {}, "serving": {"spec": {"version": "1.21"}}}]}),
            json!({"placement": {"namespaces": ["other"]}}),
            json!({"placement": {"propertySelector": {}}}),
            json!({"rollout": {"stages": [{"name": "prod"}]}}),
            json!({"rollout": {"stages": [{"name": "prod", "propertySelector": {}}]}}),
            json!({"rollout": {"stages": [{"name": "prod", "approval": "Required", "maxConcurrent": "50%"}]}}),
        ];
        let digests: BTreeSet<String> = changes.iter().map(|change| digest(&spec(change))).collect();
        assert_eq!(digests.len(), changes.len());
        assert!(digests.iter().all(|digest| digest.len() == "sha256:".len() + 64), "{digests:?}");
        let other = json!({"rollout": {"paused": true, "onFailure": "Rollback"}, "removal": {"policy": "Orphan"}, "revisionHistoryLimit": 3});
        assert_eq!(digest(&spec(&other)), digest(&spec(&json!({}))));
    }
}
