//! Resources of a fleet: names and contents, from templates and overrides.

use knative_operator_shared::api::fleet::Template;
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::label::{
    FLEET, FLEET_ANNOTATIONS, FLEET_CLUSTER, FLEET_CONTENT, FLEET_OUTCOME, FLEET_PREVIOUS, FLEET_REVISION, FLEET_STAGE,
    FLEET_UPDATED_AT, GROUP, VERSION,
};
use knative_operator_shared::text::start;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::member::Wanted;
use super::outcome::Outcome;

/// Maximum length of a label value, and of the names of children, in characters.
const MAX_LABEL: usize = 63;
/// Length of a digest in a name, in characters.
const DIGEST: usize = 10;

/// Name of the resource of `fleet` for `cluster`: the names of both, and a digest that makes it
/// unique.
pub fn child_name(fleet: &str, cluster: &ClusterProfileReference) -> String {
    let digest = short_digest(&format!("{fleet} {cluster}"));
    let readable = format!("{fleet}-{}", cluster.name).replace('.', "-");
    format!("{}-{digest}", clip(&readable, MAX_LABEL - DIGEST - 1))
}

/// The value of a label for `name`: shortened if it is too long for a label.
pub fn label_value(name: &str) -> String {
    if name.len() <= MAX_LABEL {
        return name.to_owned();
    }
    format!("{}-{}", clip(name, MAX_LABEL - DIGEST - 1), short_digest(name))
}

/// The start of `text`, a DNS name, with at most `most` characters, as a DNS name. A
/// PlacementDecision may name anything.
fn clip(text: &str, most: usize) -> &str {
    start(text, most).trim_end_matches(['-', '.'])
}

fn short_digest(text: &str) -> String {
    Sha256::digest(text).iter().take(DIGEST / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// The content of `template`.
pub fn wanted(template: &Template) -> Wanted {
    let mut content = json!(template);
    let version = content["spec"].as_object_mut().and_then(|spec| spec.remove("version"));
    let digest = Sha256::digest(content.to_string());
    let bytes = digest.first_chunk().copied().unwrap_or_default();
    Wanted { content: u128::from_be_bytes(bytes), version: version.and_then(|v| v.as_str().map(str::to_owned)) }
}

/// The content of a resource with `content` in a revision with `components`. If a revision adds or
/// drops one, the others change, too: they record the update, which has its soak.
pub fn content_with(content: u128, components: impl IntoIterator<Item = Component>) -> u128 {
    let bit = |component| Component::ALL.iter().position(|other| *other == component).unwrap_or_default();
    components.into_iter().fold(content, |content, component| content ^ (1 << bit(component)))
}

/// What a child records about its rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildRecord {
    /// Its revision.
    pub revision: String,
    /// The last revision before that was installed successfully.
    pub previous: Option<String>,
    /// Name of its stage; `None` if an earlier version wrote it.
    pub stage: Option<String>,
    /// What came of the update; `None` if an earlier version wrote it.
    pub outcome: Option<Outcome>,
    /// Time of the last apply of another revision or step (RFC 3339).
    pub updated_at: String,
    /// `spec.version` of this step.
    pub version: Option<String>,
}

/// The manifest of a child called `name` of `fleet` for `cluster`, with the content of `template`.
pub fn manifest(
    (namespace, fleet, owner): (&str, &str, &Value),
    name: &str,
    cluster: &ClusterProfileReference,
    component: Component,
    template: &Template,
    record: &ChildRecord,
) -> Value {
    let mut spec = template.spec.clone();
    match &record.version {
        Some(version) => spec.insert("version".to_owned(), json!(version)),
        None => spec.remove("version"),
    };
    spec.insert("clusterProfileRef".to_owned(), json!({"name": cluster.name, "namespace": cluster.namespace}));
    let (mut labels, mut annotations) = (template.metadata.labels.clone(), template.metadata.annotations.clone());
    labels.insert(FLEET.to_owned(), label_value(fleet));
    labels.insert(FLEET_CLUSTER.to_owned(), label_value(&cluster.name));
    labels.insert(FLEET_REVISION.to_owned(), label_value(&record.revision));
    // The state of the rollout is not the template's to set.
    FLEET_ANNOTATIONS.iter().for_each(|name| drop(annotations.remove(*name)));
    annotations.insert(FLEET_REVISION.to_owned(), record.revision.clone());
    annotations.extend(record.previous.clone().map(|previous| (FLEET_PREVIOUS.to_owned(), previous)));
    annotations.extend(record.stage.clone().map(|stage| (FLEET_STAGE.to_owned(), stage)));
    annotations.insert(FLEET_UPDATED_AT.to_owned(), record.updated_at.clone());
    annotations.extend(record.outcome.as_ref().map(|outcome| (FLEET_OUTCOME.to_owned(), outcome.to_string())));
    annotations.insert(FLEET_CONTENT.to_owned(), format!("{:032x}", wanted(template).content));
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": component.kind(),
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels, "annotations": annotations, "ownerReferences": [owner],
        },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterProfileReference {
        ClusterProfileReference { name: name.to_owned(), namespace: "fleet-system".to_owned() }
    }

    #[test]
    fn names_are_valid_and_unique() {
        let long = "a".repeat(253);
        let mut names = std::collections::BTreeSet::new();
        for fleet in ["prod", "prod-eu", &long] {
            for name in
                ["eu-1", "1", "eu.example.com", "eu-example-com", &long, &format!("{}b", &long[1..]), &"é".repeat(99)]
            {
                let child = child_name(fleet, &cluster(name));
                assert!(child.len() <= MAX_LABEL && !child.starts_with('-') && !child.contains('.'), "{child}");
                assert!(names.insert(child));
                assert!(label_value(name).len() <= MAX_LABEL);
            }
        }
        // Two names that are equal when they are joined.
        assert_ne!(child_name("a", &cluster("b-c")), child_name("a-b", &cluster("c")));
        assert_eq!(child_name("prod", &cluster("eu-1")), "prod-eu-1-76d6aaeb01");
    }

    #[test]
    fn version_is_not_part_of_the_content() {
        let template = |spec: Value| Template { spec: spec.as_object().unwrap().clone(), ..Template::default() };
        let old = wanted(&template(json!({"version": "1.22", "config": {"a": {"b": "c"}}})));
        let newer = wanted(&template(json!({"version": "1.23", "config": {"a": {"b": "c"}}})));
        let other = wanted(&template(json!({"version": "1.22", "config": {"a": {"b": "d"}}})));
        assert_eq!(newer.content, old.content);
        assert_ne!(other.content, old.content);
        assert_eq!(newer.version.as_deref(), Some("1.23"));
    }

    #[test]
    fn manifest_has_target_labels_and_record() {
        let template =
            Template { spec: json!({"version": "1.23"}).as_object().unwrap().clone(), ..Template::default() };
        let record = ChildRecord {
            revision: "prod-2".into(),
            previous: Some("prod-1".into()),
            stage: Some("canary".into()),
            outcome: Some(Outcome::Succeeded),
            updated_at: "2026-01-01T00:00:00Z".into(),
            version: Some("1.22.1".into()),
        };
        let owner = json!({"kind": "KnativeFleet"});
        let child = manifest(("ns", "prod", &owner), "name", &cluster("eu-1"), Component::Serving, &template, &record);
        assert_eq!(
            child["spec"],
            json!({"version": "1.22.1", "clusterProfileRef": {"name": "eu-1", "namespace": "fleet-system"}})
        );
        assert_eq!(
            child["metadata"]["labels"],
            json!({FLEET: "prod", FLEET_CLUSTER: "eu-1", FLEET_REVISION: "prod-2"})
        );
        assert_eq!(child["metadata"]["annotations"][FLEET_REVISION], "prod-2");
        assert_eq!(child["metadata"]["annotations"][FLEET_PREVIOUS], "prod-1");
        assert_eq!(child["metadata"]["annotations"][FLEET_OUTCOME], "Succeeded");
        assert_eq!(child["metadata"]["annotations"][FLEET_STAGE], "canary");
        assert_eq!(child["metadata"]["ownerReferences"], json!([owner]));
    }
}
