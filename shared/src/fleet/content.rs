//! What a fleet rolls out, and where: the content and the names of its revisions, and the digest
//! that approvals are bound to.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::api::KnativeFleetSpec;
use crate::api::fleet::{FleetOverride, Template};
use crate::name::MAX_NAME;

/// Length of the digest in the name of a revision, in bytes. The content is compared, too.
const NAME_DIGEST: usize = 16;
/// The same, of names that an earlier version gave.
const EARLIER_NAME_DIGEST: usize = 5;

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
}

impl RevisionData {
    /// The content of `spec`.
    pub fn of(spec: &KnativeFleetSpec) -> Self {
        let KnativeFleetSpec { serving, eventing, overrides, .. } = spec.clone();
        Self { serving, eventing, overrides }
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
    fn digest_is_of_what_is_rolled_out_and_where() {
        let changes = [
            json!({}),
            json!({"serving": {"spec": {"version": "1.23"}}}),
            json!({"eventing": {"spec": {}}}),
            json!({"overrides": [{"clusterSelector": {}, "serving": {"spec": {"version": "1.21"}}}]}),
            json!({"placement": {"namespaces": ["other"]}}),
            json!({"rollout": {"stages": [{"name": "prod"}]}}),
            json!({"rollout": {"stages": [{"name": "prod", "approval": "Required", "maxConcurrent": "50%"}]}}),
        ];
        let digests: BTreeSet<String> = changes.iter().map(|change| digest(&spec(change))).collect();
        assert_eq!(digests.len(), changes.len());
        assert!(digests.iter().all(|digest| digest.len() == "sha256:".len() + 64), "{digests:?}");
        let other = json!({"rollout": {"paused": true, "onFailure": "Rollback"}, "removal": {"policy": "Orphan"}, "revisionHistoryLimit": 3});
        assert_eq!(digest(&spec(&other)), digest(&spec(&json!({}))));
    }
}
