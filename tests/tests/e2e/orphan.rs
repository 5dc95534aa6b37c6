//! Installations that stay when their resource is deleted, and that the next resource takes up.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::events::v1::Event;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, http, product, releases, wait};
use kube::Api;
use serde_json::{Value, json};

use crate::owners::{ANCHOR, PLACE, hub, owner, state};
use crate::support::{
    INSTALL, apply, delete, eventing, gone, has_condition, has_event, jobs_done, namespace, nothing_left, ready, run,
    serving,
};

const ON_DELETE: &str = "operator.knative.dev/on-delete=orphan";

/// Annotates `resource`, which announces what that means, and deletes it.
async fn orphan(hub: &Cluster, kind: &str, resource: &Value) -> Result<()> {
    let place = resource["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = resource["metadata"]["name"].as_str().unwrap_or_default();
    let (well, output) = hub.kubectl_output(&["annotate", kind, name, "-n", place, ON_DELETE], "").await;
    assert!(well && output.contains("Warning") && output.contains("leaves"), "{output}");
    // In the foreground, the garbage collector would uninstall it first.
    let line = ["delete", kind, name, "-n", place, "--wait=false", "--cascade=foreground"];
    let (is_deleted, output) = hub.kubectl_output(&line, "").await;
    assert!(!is_deleted && output.contains("delete it with --cascade=background"), "{output}");
    hub.object(kind, place, name).start_deletion().await?;
    gone(hub, resource).await?;
    let is_orphaned = |event: &Event| event.reason.as_deref() == Some("Orphaned");
    let events: Api<Event> = Api::namespaced(hub.client(), place);
    let all = wait::until_all(&events, "", INSTALL, "reported as orphaned", |all| all.iter().any(is_orphaned)).await?;
    let uninstalls =
        all.iter().any(|event| event.reason.as_deref().is_some_and(|reason| reason.starts_with("Uninstall")));
    assert!(!uninstalls, "{all:?}");
    Ok(())
}

/// Deletes `resource` while its anchor on `spoke` names another owner, which is reported; then
/// corrects the anchor and creates `resource` again.
async fn left_by_a_forged_owner(hub: &Cluster, spoke: &Cluster, resource: &Value) -> Result<()> {
    let place = resource["metadata"]["namespace"].as_str().unwrap_or_default();
    let record = owner(spoke, PLACE, ANCHOR).await?;
    let mut forged = record.clone();
    forged["name"] = json!("somebody");
    let write = async |record: &Value| {
        let annotation = format!("operator.knative.dev/owner={record}");
        spoke.kubectl(&["annotate", "--overwrite", "configmap", ANCHOR, "-n", PLACE, &annotation], "").await
    };
    write(&forged).await?;
    has_condition(hub, resource, "InstallSucceeded", "Occupied", "/somebody").await?;
    hub.object("knativeserving", place, "knative-serving").start_deletion().await?;
    gone(hub, resource).await?;
    has_event(hub, place, "Orphaned", "not as the installed objects show").await?;
    write(&record).await?;
    apply(hub, resource).await?;
    ready(hub, resource).await.map(drop)
}

/// Uids of Deployments and Pods.
fn uids(state: &BTreeMap<String, (String, i64)>) -> BTreeMap<&str, &str> {
    state.iter().map(|(name, (uid, _))| (name.as_str(), uid.as_str())).collect()
}

#[test]
fn orphaned_installations_are_taken_up_without_a_restart() {
    run(async {
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let (started, spoke) = tokio::try_join!(hub("orphans", &releases, plugins.path()), Cluster::spoke("orphan"))?;
        let (hub, product) = started;
        product::register(&hub, &spoke, "orphan").await?;
        let remote = serving("team-a", "knative-serving", Some("orphan"), &releases);
        let other_name = serving("team-a", "other", Some("orphan"), &releases);
        let next = serving("team-b", "knative-serving", Some("orphan"), &releases);
        let local = eventing("knative-eventing", "knative-eventing", None, &releases);
        for place in ["team-a", "team-b", "knative-eventing"] {
            namespace(&hub, place).await?;
        }
        let before: [BTreeSet<String>; 2] = [objects(&spoke.client()).await?, objects(&hub.client()).await?];
        for resource in [&remote, &local] {
            apply(&hub, resource).await?;
        }
        for resource in [&remote, &local] {
            ready(&hub, resource).await?;
        }
        jobs_done(&spoke, PLACE, ANCHOR).await?;
        let installed = [state(&spoke, PLACE).await?, state(&hub, "knative-eventing").await?];

        orphan(&hub, "knativeserving", &remote).await?;
        orphan(&hub, "knativeeventing", &local).await?;
        assert_eq!(state(&spoke, PLACE).await?, installed[0]);
        let (_, metrics) = http::get(product.metrics(), "/metrics").await?;
        for kind in ["KnativeServing", "KnativeEventing"] {
            assert!(metrics.contains(&format!("knative_operator_orphaned_total{{kind=\"{kind}\"")), "{metrics}");
        }
        let references = "jsonpath={.items[*].metadata.ownerReferences[?(@.kind==\"KnativeEventing\")].uid}";
        let all = "deployments,services,configmaps,serviceaccounts,secrets";
        let owners = hub.kubectl(&["get", all, "-n", "knative-eventing", "-o", references], "").await?;
        assert_eq!(owners.trim(), "", "the garbage collector would delete objects");

        // The message of a resource with another name has the right name.
        apply(&hub, &other_name).await?;
        has_condition(&hub, &other_name, "InstallSucceeded", "Occupied", "with the name knative-serving").await?;
        delete(&hub, &other_name).await?;
        // The next owners: in another namespace, and with another uid.
        for resource in [&next, &local] {
            apply(&hub, resource).await?;
        }
        for resource in [&next, &local] {
            ready(&hub, resource).await?;
        }
        assert_eq!(owner(&spoke, PLACE, ANCHOR).await?["namespace"], "team-b");
        let taken = [state(&spoke, PLACE).await?, state(&hub, "knative-eventing").await?];
        for (taken, installed) in taken.iter().zip(&installed) {
            assert_eq!(uids(taken), uids(installed), "Pods were restarted");
        }
        left_by_a_forged_owner(&hub, &spoke, &next).await?;
        // They uninstall all of it.
        delete(&hub, &next).await?;
        delete(&hub, &local).await?;
        nothing_left(&spoke, &before[0]).await?;
        nothing_left(&hub, &before[1]).await
    });
}
