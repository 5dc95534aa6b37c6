//! What the API server says about the objects and the Pods of an installation, by server-side dry
//! run.

use std::collections::BTreeSet;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use knative_operator_runtime::identity::post_as;
use knative_operator_shared::label::FIELD_MANAGER;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::command::output::PROGRAM;
use knative_operator_apply::differ::runs_once;
use knative_operator_apply::error::ApplyError;
use knative_operator_apply::{api, resolve_kind, served, update_strategy};
use knative_operator_objects::ObjectId;
use knative_operator_objects::plan::{Item, Phase, Plan};

/// Concurrent requests.
const CONCURRENCY: usize = 16;

/// An object that the API server refuses, and why.
pub type Refusal = (ObjectId, ApplyError);

/// What was tried.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// Number of objects that the API server accepts.
    pub accepted: usize,
    /// Number of objects that can't be tried, because their namespace does not exist.
    pub left_out: usize,
    /// Objects that it refuses.
    pub refused: Vec<Refusal>,
    /// Workloads whose Pods it refuses.
    pub refused_pods: Vec<Refusal>,
    /// Those of them that exist, and may have Pods.
    pub existing: BTreeSet<ObjectId>,
}

/// What became of an object.
enum Answer {
    Accepted,
    /// Nothing can be said before the installation.
    Untried,
    /// Its namespace does not exist.
    LeftOut,
    Refused(ApplyError),
}

/// Tries the objects of `plan`, and a Pod of each workload. `absent`: the namespace in which
/// nothing can be tried, because it does not exist, or not for long.
pub async fn try_all(client: &Client, plan: &Plan, absent: Option<&str>) -> Tried {
    let mut tried = Tried::default();
    let requests: Vec<_> =
        plan.items().iter().map(async |item| (item, try_object(client, plan, item, absent).await)).collect();
    let answers: Vec<(&Item, Answer)> = futures::stream::iter(requests).buffered(CONCURRENCY).collect().await;
    for (item, answer) in answers {
        match answer {
            Answer::Accepted => tried.accepted += 1,
            Answer::LeftOut => tried.left_out += 1,
            Answer::Refused(why) => tried.refused.push((item.id.clone(), why)),
            Answer::Untried => {}
        }
    }
    let pods: Vec<_> = plan.items().iter().filter_map(|item| Some((item, pod(plan, item, absent)?))).collect();
    let requests: Vec<_> = pods.iter().map(async |(item, pod)| (*item, try_pod(client, item, pod).await)).collect();
    let answers: Vec<(&Item, Result<(), ApplyError>)> =
        futures::stream::iter(requests).buffered(CONCURRENCY).collect().await;
    for (item, answer) in answers {
        let Err(why) = answer else { continue };
        if exists(client, plan, item).await {
            tried.existing.insert(item.id.clone());
        }
        tried.refused_pods.push((item.id.clone(), why));
    }
    tried
}

/// Whether the cluster has `item`, as far as it says.
async fn exists(client: &Client, plan: &Plan, item: &Item) -> bool {
    let Ok(Some(kind)) = resolve_kind(client, plan.kinds(), &item.gvk).await else { return false };
    api(client, &kind, &item.id).get_metadata_opt(&item.id.name).await.is_ok_and(|found| found.is_some())
}

async fn try_object(client: &Client, plan: &Plan, item: &Item, absent: Option<&str>) -> Answer {
    let kind = match resolve_kind(client, plan.kinds(), &item.gvk).await {
        Ok(Some(kind)) => kind,
        Ok(None) => return Answer::Refused(ApplyError::no_kind(&item.gvk)),
        Err(error) => return Answer::Refused(error.into()),
    };
    // Bindings need their roles, what Knative's webhooks admit needs these, and a Job is not
    // written twice.
    if item.is_binding() || item.phase() == Phase::Dependents || runs_once(item) {
        return Answer::Untried;
    }
    if !item.id.namespace.is_empty() && absent == Some(item.id.namespace.as_str()) {
        return Answer::LeftOut;
    }
    let mut object = plan.object_of(item);
    // The owner does not exist yet.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
    let params = PatchParams { dry_run: true, ..PatchParams::apply(FIELD_MANAGER).force() };
    match api(client, &kind, &item.id).patch_metadata(&item.id.name, &params, &Patch::Apply(&object)).await {
        Ok(_) => Answer::Accepted,
        // Its definition is part of the installation.
        Err(error) if served::is_not_served(&error) => Answer::Untried,
        // The operator applies it in two steps.
        Err(kube::Error::Api(status))
            if status.code == 422 && update_strategy::claiming_rolling_update(&object).is_some() =>
        {
            Answer::Accepted
        }
        Err(error) => Answer::Refused(error.into()),
    }
}

/// A Pod of the workload `item`, without its ServiceAccount, which may not exist yet.
fn pod(plan: &Plan, item: &Item, absent: Option<&str>) -> Option<Value> {
    let namespace = item.id.namespace.as_str();
    if !matches!(item.id.group.as_str(), "apps" | "batch") || absent == Some(namespace) {
        return None;
    }
    let object = plan.object_of(item);
    let template = object.pointer("/spec/template")?;
    let mut spec = template.get("spec")?.clone();
    let fields = spec.as_object_mut()?;
    for account in ["serviceAccountName", "serviceAccount"] {
        fields.remove(account);
    }
    fields.insert("automountServiceAccountToken".to_owned(), json!(false));
    let meta = &template["metadata"];
    let meta = json!({"generateName": "preflight-", "namespace": namespace, "labels": meta["labels"], "annotations": meta["annotations"]});
    Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}))
}

async fn try_pod(client: &Client, item: &Item, pod: &Value) -> Result<(), ApplyError> {
    let pod: Pod = serde_json::from_value(pod.clone()).map_err(|error| ApplyError::Other(error.to_string()))?;
    let params = PostParams { dry_run: true, ..post_as(PROGRAM) };
    Api::<Pod>::namespaced(client.clone(), &item.id.namespace).create(&params, &pod).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_objects::plan::Rendered;
    use knative_operator_objects::{CompactObject, Owner};
    use knative_operator_shared::api::{Knative, KnativeServing};

    use super::*;

    #[test]
    fn pod_has_what_the_template_has_but_for_the_account() {
        let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"serviceAccountName": "controller", "containers": [{"name": "c", "image": "i"}]}});
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}, "spec": {"template": template}});
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n"}});
        let rendered = Rendered::new([workload, other].iter().map(CompactObject::new).collect());
        let owner = Owner::of(&Knative::Serving(KnativeServing::default()), "");
        let plan = Plan::new(Arc::new(rendered), &owner);
        let pods =
            |absent: Option<&str>| plan.items().iter().filter_map(|item| pod(&plan, item, absent)).collect::<Vec<_>>();
        assert_eq!(pods(Some("n")), Vec::<Value>::new());
        let expected = json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
        let found = pods(Some("other"));
        assert_eq!((found.len(), &found[0]["spec"]), (1, &expected));
        assert_eq!(found[0]["metadata"]["labels"], json!({"app": "a"}));
        assert!(serde_json::from_value::<Pod>(found[0].clone()).is_ok());
    }
}
