//! Least privilege on a spoke: the role that `knative-operator spoke-role` prints suffices, and
//! each permission in it is used.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::label::DIGEST;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, SPOKE_USER};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, tools, wait};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{
    INSTALL, apply, condition, delete, eventing, fleet, jobs_done, namespace, nothing_left, run, serving, status,
};

/// Versions before and after the upgrade; each component has its own patch versions.
const MINORS: [&str; 2] = ["1.22", "1.23"];
/// Time limit of a repair: less than the back-off of a contended object.
const REPAIR: Duration = Duration::from_secs(45);
/// Permissions that no request has in the audit log: resource, verb, reason.
const UNUSED: [(&str, &str, &str); 4] = [
    ("clusterroles.rbac.authorization.k8s.io", "escalate", "the API server checks it in writes of aggregated roles"),
    ("pods", "list", "to find out why a workload is not available"),
    ("pods/log", "get", "to find out why a workload is not available"),
    ("events", "list", "to find out why a workload is not available"),
];

/// A verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    group: String,
    /// With the subresource.
    resource: String,
    /// Name of the object; empty for all objects.
    name: String,
    verb: String,
}

impl Permission {
    /// Whether `self` includes `other`, as Kubernetes documents it for rules.
    fn includes(&self, other: &Self) -> bool {
        let any_or = |own: &str, other: &str| own == "*" || own == other;
        let is_subresource = other.resource.split_once('/').is_some_and(|(_, sub)| self.resource == format!("*/{sub}"));
        any_or(&self.group, &other.group)
            && (any_or(&self.resource, &other.resource) || is_subresource)
            && any_or(&self.verb, &other.verb)
            && (self.name.is_empty() || self.name == other.name)
    }

    /// Whether a part of it stands for all.
    fn has_wildcard(&self) -> bool {
        [&self.group, &self.resource, &self.verb].into_iter().any(|part| part.contains('*'))
    }

    /// The resource, with its group.
    fn target(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }
}

/// The permissions in `rule`.
fn permissions(rule: &PolicyRule) -> Vec<Permission> {
    let names = rule.resource_names.clone().filter(|names| !names.is_empty()).unwrap_or_else(|| vec![String::new()]);
    let mut all = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for name in &names {
                all.extend(rule.verbs.iter().map(|verb| Permission {
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
    all
}

/// The role that the command prints for `resources` in both versions.
fn printed_role(folder: &Path, releases: &Path, resources: &[&Value]) -> Result<Value> {
    let file = folder.join("resources.yaml");
    std::fs::write(&file, resources.iter().map(|resource| format!("---\n{resource}\n")).collect::<String>())?;
    let mut command = Command::new(tools::binary("knative-operator")?);
    command.args(["spoke-role", "--versions", &MINORS.join(","), "-f"]).arg(&file).arg("--releases").arg(releases);
    let output = command.output()?;
    let (text, errors) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success(), "{errors}");
    // Warnings.
    eprint!("{errors}");
    Ok(serde_saphyr::from_str(&text).map_err(|error| format!("{error}\n{text}"))?)
}

/// What the roles that the operator applied on `spoke` grant. The API server checks that their
/// author has it.
async fn granted(spoke: &Cluster) -> Result<BTreeSet<Permission>> {
    let is_applied = |meta: &ObjectMeta| meta.annotations.as_ref().is_some_and(|all| all.contains_key(DIGEST));
    let mut rules: Vec<PolicyRule> = Vec::new();
    for role in Api::<ClusterRole>::all(spoke.client()).list(&ListParams::default()).await? {
        // The rules of one that aggregates others are theirs.
        if is_applied(&role.metadata) && role.aggregation_rule.is_none() {
            rules.extend(role.rules.unwrap_or_default());
        }
    }
    for role in Api::<Role>::all(spoke.client()).list(&ListParams::default()).await? {
        if is_applied(&role.metadata) {
            rules.extend(role.rules.unwrap_or_default());
        }
    }
    Ok(rules.iter().flat_map(permissions).collect())
}

/// What the requests of the operator to `spoke` needed, and those that were refused.
fn requested(spoke: &Cluster) -> Result<(BTreeSet<Permission>, Vec<String>)> {
    let (mut needed, mut refused) = (BTreeSet::new(), Vec::new());
    for line in std::fs::read_to_string(spoke.dir().join("audit.log"))?.lines() {
        // The last line may be incomplete.
        let Ok(request) = serde_json::from_str::<Value>(line) else { continue };
        if request["user"]["username"] != SPOKE_USER {
            continue;
        }
        let code = request["responseStatus"]["code"].as_i64().unwrap_or_default();
        if matches!(code, 401 | 403) {
            let (verb, message) = (&request["verb"], &request["responseStatus"]["message"]);
            refused.push(format!("{code} {verb} {}: {message}", request["requestURI"]));
        }
        let part = |key: &str| request["objectRef"][key].as_str().unwrap_or_default().to_owned();
        if part("resource").is_empty() {
            continue;
        }
        let resource = [part("resource"), part("subresource")].join("/");
        let permission = |verb: &str| Permission {
            group: part("apiGroup"),
            resource: resource.trim_end_matches('/').to_owned(),
            name: part("name"),
            verb: verb.to_owned(),
        };
        let verb = request["verb"].as_str().unwrap_or_default();
        needed.insert(permission(verb));
        if verb == "patch" && code == 201 {
            // Server-side apply created the object.
            needed.insert(permission("create"));
        } else if verb == "watch" {
            // A watch begins with the list, except for API servers before 1.34.
            needed.insert(permission("list"));
        }
    }
    Ok((needed, refused))
}

/// Waits until `resource` is Ready with a version of `minor`.
async fn installed(hub: &Cluster, resource: &Value, minor: &str) -> Result<()> {
    let what = format!("Ready with version {minor}");
    status(hub, resource, INSTALL, &what, |s| {
        s.version.as_deref().is_some_and(|version| version.starts_with(&format!("{minor}.")))
            && condition(s, "Ready").is_some_and(|c| c.status == "True")
    })
    .await
    .map(drop)
}

#[test]
fn printed_role_suffices_to_install_upgrade_and_remove() {
    run(async {
        let fleet = fleet().await?;
        let (hub, spoke) = (&fleet.hub, Cluster::spoke("least").await?);
        let (mut serving, mut eventing) = (
            serving("least", "ks", Some("least"), &fleet.releases),
            eventing("least", "ke", Some("least"), &fleet.releases),
        );
        let role = printed_role(spoke.dir(), &fleet.releases.dir, &[&serving, &eventing])?;
        let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone())?;
        let printed: BTreeSet<Permission> = rules.iter().flat_map(permissions).collect();
        assert!(printed.iter().all(|one| one.verb != "bind"), "{printed:#?}");
        assert!(printed.iter().all(|one| one.verb != "escalate" || !one.name.is_empty()), "{printed:#?}");
        apply(&spoke, &role).await?;
        product::register_with_role(hub, &spoke, "least", "knative-operator-spoke").await?;
        // The operator looks into a namespace that exists before.
        namespace(&spoke, "knative-eventing").await?;
        namespace(hub, "least").await?;
        let before = objects(&spoke.client()).await?;

        let mut used = BTreeSet::new();
        for minor in MINORS {
            for resource in [&mut serving, &mut eventing] {
                resource["spec"]["version"] = json!(minor);
            }
            tokio::try_join!(apply(hub, &serving), apply(hub, &eventing))?;
            tokio::try_join!(installed(hub, &serving, minor), installed(hub, &eventing, minor))?;
            used.append(&mut granted(&spoke).await?);
        }
        assert!(used.len() > 100, "the roles grant {} permissions", used.len());
        // `*` includes what is defined later, too: only where a role of the release grants it.
        let wider: Vec<_> =
            printed.iter().filter(|one| one.has_wildcard() && !used.iter().any(|other| other.includes(one))).collect();
        assert!(wider.is_empty(), "wider than all roles of the releases: {wider:#?}");
        eprintln!("{} permissions with *, which roles grant", printed.iter().filter(|one| one.has_wildcard()).count());

        // Repairs: a workload, and a role that aggregates others.
        let deployments = Api::<Deployment>::namespaced(spoke.client(), "knative-serving");
        let uid = deployments.get("activator").await?.uid();
        deployments.delete("activator", &DeleteParams::default()).await?;
        wait::until(&deployments, "activator", REPAIR, "back", |d| d.is_some_and(|d| d.uid() != uid)).await?;
        let roles = Api::<ClusterRole>::all(spoke.client());
        let uid = roles.get("knative-serving-admin").await?.uid();
        roles.delete("knative-serving-admin", &DeleteParams::default()).await?;
        wait::until(&roles, "knative-serving-admin", REPAIR, "back", |r| r.is_some_and(|r| r.uid() != uid)).await?;
        tokio::try_join!(installed(hub, &serving, MINORS[1]), installed(hub, &eventing, MINORS[1]))?;
        tokio::try_join!(
            jobs_done(&spoke, "knative-serving", "knativeserving-ks-root-owner"),
            jobs_done(&spoke, "knative-eventing", "knativeeventing-ke-root-owner")
        )?;

        tokio::try_join!(delete(hub, &serving), delete(hub, &eventing))?;
        nothing_left(&spoke, &before).await?;

        let (mut needed, refused) = requested(&spoke)?;
        assert!(refused.is_empty(), "refused: {refused:#?}");
        eprintln!(
            "{} rules with {} permissions; requests needed {} and roles granted {}",
            rules.len(),
            printed.len(),
            needed.len(),
            used.len()
        );
        used.append(&mut needed);
        let is_used = |one: &Permission| used.iter().any(|other| one.includes(other));
        let reason = |one: &Permission| {
            let mut all = UNUSED.into_iter();
            all.find(|(target, verb, _)| one.target() == *target && one.verb == *verb).map(|(_, _, reason)| reason)
        };
        let mut unused = Vec::new();
        for one in printed.iter().filter(|one| !is_used(one)) {
            match reason(one) {
                Some(reason) => eprintln!("not in the audit log: {} {} {}: {reason}", one.verb, one.target(), one.name),
                None => unused.push(one),
            }
        }
        assert!(unused.is_empty(), "never used: {unused:#?}");
        Ok(())
    });
}
