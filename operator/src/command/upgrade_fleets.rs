//! What an operator with another release bundle does to fleets: with a newer version that a
//! template means, it starts a rollout.

use knative_operator_shared::api::{Component, Knative, KnativeFleet};
use knative_operator_shared::rules::{self, Kind};
use knative_operator_shared::version::Version;
use kube::Client;
use serde_json::{Value, json};

use super::fleet::update_revision;
use super::list;
use super::table::row;
use knative_operator_fleet::child;
use knative_operator_fleet::revision::RevisionData;
use knative_operator_fleet::versions::{self, Meaning, VersionSources};
use knative_operator_release::Bundle;

/// A fleet, with what it rolls out.
pub type Stored = (KnativeFleet, Option<RevisionData>);

/// The fleets in `namespace` or in all. Those that are being deleted begin no rollout.
pub async fn fleets(client: &Client, namespace: Option<&str>) -> Result<Vec<Stored>, String> {
    let mut fleets = Vec::new();
    for object in list::objects(client, Kind::Fleet, namespace).await?.unwrap_or_default() {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let fleet = rules::parse_fleet(&json!(object)).map_err(|why| format!("KnativeFleet {name}: {why}"))?;
        if fleet.metadata.deletion_timestamp.is_none() {
            let before = update_revision(client, &fleet).await?;
            fleets.push((fleet, before));
        }
    }
    Ok(fleets)
}

/// Whether `fleet` owns `resource`.
pub fn is_owned(fleet: &KnativeFleet, resource: &Knative) -> bool {
    let (meta, uid) = (resource.meta(), fleet.metadata.uid.as_deref());
    let mut owners = meta.owner_references.iter().flatten();
    meta.namespace == fleet.metadata.namespace
        && owners.any(|owner| owner.kind == "KnativeFleet" && Some(owner.uid.as_str()) == uid)
}

/// A row about each version that `fleet`, which rolls out `before` and owns `resources`, asks for:
/// the one that it has, and what an operator with `bundle` does.
pub fn rows(bundle: &Bundle, (fleet, before): &Stored, resources: &[&Knative]) -> Result<Vec<Vec<String>>, String> {
    let mut available = Vec::new();
    for component in Component::ALL {
        available.push((component, bundle.versions(component).map_err(|error| error.to_string())?));
    }
    let installed: Vec<(Component, Version)> =
        resources.iter().filter_map(|one| Some((one.component(), child::known_version(one)?))).collect();
    let (available, before) = (available.as_slice(), before.as_ref());
    let keeps_installed = fleet.status.as_ref().is_some_and(|status| versions::are_stopped(&fleet.spec, status));
    let sources = VersionSources { available, before, installed: &installed, keeps_installed };
    let data = RevisionData::of(&fleet.spec);
    let meanings = versions::meanings(&data, &sources);
    let (namespace, name) = (fleet.metadata.namespace.as_deref(), fleet.metadata.name.as_deref());
    let mut rows = Vec::new();
    for component in data.components() {
        let field = component.word();
        let mut describe = |asked: &str, has: &str, effect: &str| {
            let asked = format!("{field} {asked}");
            rows.push(row([
                "KnativeFleet",
                namespace.unwrap_or_default(),
                name.unwrap_or_default(),
                &asked,
                has,
                effect,
            ]));
        };
        let own = data.template(component).and_then(|template| template.spec.get("version")).and_then(Value::as_str);
        if let Some(exact) = own.filter(|asked| !Version::is_floating(Some(asked))) {
            describe(exact, exact, "stays");
        }
        for Meaning { asked, before, after, .. } in meanings.iter().filter(|meaning| meaning.kind == component.kind()) {
            let has = before.as_deref().unwrap_or("-");
            match after.as_ref().filter(|after| before.as_ref() != Some(*after)) {
                Some(after) => describe(asked, has, &format!("rolls out {after}, in stages")),
                None => describe(asked, has, "stays"),
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::KnativeFleetStatus;
    use knative_operator_shared::fleet::content;

    use super::*;

    #[test]
    fn fleet_rolls_out_what_its_versions_mean_in_the_bundle() {
        let root = tempfile::tempdir().unwrap();
        for version in ["knative-serving/1.22.5", "knative-serving/1.23.0", "knative-eventing/1.22.1"] {
            std::fs::create_dir_all(root.path().join(version)).unwrap();
        }
        let bundle = Bundle::open(root.path().to_owned());
        let child = |component: Component, version: &str| {
            let object = json!({"metadata": {"name": "f-a", "namespace": "n", "ownerReferences":
                [{"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "name": "f", "uid": "1"}]},
                "spec": {"version": version}, "status": {"version": version}});
            rules::parse(component, &object).unwrap()
        };
        let children = [child(Component::Serving, "1.22.1"), child(Component::Eventing, "1.22.1")];
        let of = |spec: Value, before: Option<RevisionData>| {
            let mut object = json!({"metadata": {"name": "f", "namespace": "n", "uid": "1"}, "spec": spec});
            object["spec"]["placement"] = json!({"clusterSelector": {}});
            let fleet = rules::parse_fleet(&object).unwrap();
            let own: Vec<&Knative> = children.iter().filter(|child| is_owned(&fleet, child)).collect();
            assert_eq!(own.len(), 2);
            let rows = rows(&bundle, &(fleet, before), &own).unwrap();
            rows.iter().map(|row| row[3..].join(" | ")).collect::<Vec<_>>()
        };
        let serving = |version: Value| json!({"serving": {"spec": {"version": version}}});
        assert_eq!(of(serving(json!("1.22")), None), ["serving 1.22 | 1.22.1 | rolls out 1.22.5, in stages"]);
        assert_eq!(of(serving(json!("1.22.1")), None), ["serving 1.22.1 | 1.22.1 | stays"]);
        let both = json!({"serving": {"spec": {}}, "eventing": {"spec": {"version": "1.22"}}, "overrides":
            [{"clusterSelector": {}, "serving": {"spec": {"version": "1.22"}}}]});
        let expected = [
            "serving 1.22 | 1.22.1 | rolls out 1.22.5, in stages",
            "serving latest | 1.22.1 | rolls out 1.23.0, in stages",
            "eventing 1.22 | 1.22.1 | stays",
        ];
        assert_eq!(of(both, None), expected);
        // It rolls out the newer one already.
        let before: RevisionData = serde_json::from_value(json!({"serving": {"spec": {"version": "1.22"}},
            "versions": {"KnativeServing": {"1.22": "1.22.5"}}}))
        .unwrap();
        assert_eq!(of(serving(json!("1.22")), Some(before)), ["serving 1.22 | 1.22.5 | stays"]);
        assert_eq!(of(serving(json!("1.25")), None), ["serving 1.25 | - | stays"]);
        // Failures stopped it.
        let spec = json!({"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22"}}});
        let mut fleet =
            rules::parse_fleet(&json!({"metadata": {"name": "f", "namespace": "n", "uid": "1"}, "spec": spec}))
                .unwrap();
        fleet.status = Some(KnativeFleetStatus {
            update_revision: Some("r".to_owned()),
            failed_revisions: Some(vec!["r".to_owned()]),
            rollout_digest: Some(content::digest(&fleet.spec)),
            ..KnativeFleetStatus::default()
        });
        let own: Vec<&Knative> = children.iter().collect();
        assert_eq!(rows(&bundle, &(fleet, None), &own).unwrap()[0][3..].join(" | "), "serving 1.22 | 1.22.1 | stays");
    }
}
