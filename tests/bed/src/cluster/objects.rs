//! Objects by kind and name, read and changed without kubectl: starting it costs more than the
//! request.

use std::fmt::Write;
use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::{Client, Resource, ResourceExt, discovery};
use serde_json::{Value, json};

use super::Cluster;
use crate::waits::timed;
use crate::{Result, wait};

/// Time limit until a deleted object is gone.
pub(super) const GONE: Duration = wait::LIMIT;

/// Most objects of a list.
const MOST: u32 = 500;
/// Time limit until discovery has a kind.
const ANNOUNCED: Duration = Duration::from_secs(60);
/// Interval of polls, where nothing can be watched.
const POLL: Duration = Duration::from_millis(20);

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const OPERATOR: &str = "operator.knative.dev/v1beta1";
const FLEETS: &str = "operator.knative.dev/v1alpha1";
const PROFILES: &str = "multicluster.x-k8s.io/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Kinds that need no discovery: version, kind, plural, and whether objects have a namespace.
const KINDS: [(&str, &str, &str, bool); 26] = [
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Event", "events", true),
    ("v1", "Namespace", "namespaces", false),
    ("v1", "Node", "nodes", false),
    ("v1", "Pod", "pods", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "Service", "services", true),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("apps/v1", "ControllerRevision", "controllerrevisions", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("batch/v1", "Job", "jobs", true),
    ("coordination.k8s.io/v1", "Lease", "leases", true),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    (RBAC, "Role", "roles", true),
    (RBAC, "RoleBinding", "rolebindings", true),
    (RBAC, "ClusterRole", "clusterroles", false),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", false),
    (ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
    (ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    (ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false),
    (ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false),
    (PROFILES, "ClusterProfile", "clusterprofiles", true),
    (OPERATOR, "KnativeServing", "knativeservings", true),
    (OPERATOR, "KnativeEventing", "knativeeventings", true),
    (FLEETS, "KnativeFleet", "knativefleets", true),
    (FLEETS, "KnativeFleetApproval", "knativefleetapprovals", true),
];

/// The resource of `kind`, a name in any letter case or a plural, and whether its objects have a
/// namespace.
fn known(kind: &str) -> Option<(ApiResource, bool)> {
    let found = KINDS.iter().find(|known| known.1.eq_ignore_ascii_case(kind) || known.2 == kind);
    let (version, kind, plural, is_namespaced) = *found?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, kind);
    Some((ApiResource::from_gvk_with_plural(&gvk, plural), is_namespaced))
}

/// The string at `pointer` in `object`; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The resource of `object`, and whether it has a namespace: of a known kind, or by discovery.
pub(super) async fn resource(client: &Client, object: &Value) -> Result<(ApiResource, bool)> {
    let found = known(text(object, "/kind")).filter(|(kind, _)| kind.api_version == text(object, "/apiVersion"));
    if let Some(found) = found {
        return Ok(found);
    }
    let started = Instant::now();
    loop {
        match discovered(client, object).await {
            // A kind is announced a moment after its definition is established.
            Err(_) if started.elapsed() < ANNOUNCED => tokio::time::sleep(POLL).await,
            other => return other,
        }
    }
}

/// The resource of `object`, and whether it has a namespace, as the API server serves it now.
pub(super) async fn discovered(client: &Client, object: &Value) -> Result<(ApiResource, bool)> {
    let version = text(object, "/apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, text(object, "/kind"));
    let (kind, capabilities) = discovery::pinned_kind(client, &gvk).await?;
    Ok((kind, capabilities.scope == discovery::Scope::Namespaced))
}

/// A refusal in the words of kubectl.
pub(super) fn words(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut causes: Vec<_> = causes.map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    causes.dedup();
    let mut words = match &status.details {
        Some(details) if status.reason == "Invalid" && !causes.is_empty() => {
            format!("The {} \"{}\" is invalid: ", details.kind, details.name)
        }
        _ if status.reason.is_empty() => return format!("Error from server: {}", status.message),
        _ => return format!("Error from server ({}): {}", status.reason, status.message),
    };
    match causes.as_slice() {
        [cause] => words.push_str(cause),
        _ => causes.iter().for_each(|cause| _ = write!(words, "\n* {cause}")),
    }
    words
}

fn in_words(error: kube::Error) -> crate::Error {
    match error {
        kube::Error::Api(status) => words(&status).into(),
        other => other.into(),
    }
}

/// `object` as `kubectl get` shows it: without the managers of its fields.
fn shown(mut object: DynamicObject) -> Result<Value> {
    object.metadata.managed_fields = None;
    Ok(serde_json::to_value(object)?)
}

/// An object of a cluster, which may not exist.
pub struct Object {
    api: Api<DynamicObject>,
    client: Client,
    name: String,
}

impl Cluster {
    /// The object `name` of `kind`, whose name is in any letter case, in `namespace`. That is empty
    /// for a kind without.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Object {
        Object { api: self.objects(kind, namespace).0, client: self.client(), name: name.to_owned() }
    }

    /// The object with the kind, the namespace and the name of `object`.
    pub fn stored(&self, object: &Value) -> Object {
        self.object(text(object, "/kind"), text(object, "/metadata/namespace"), text(object, "/metadata/name"))
    }

    /// Creates `object` as `kubectl create` does: without the record of `apply`.
    /// A dry run stores nothing.
    pub async fn create(&self, object: &Value, is_dry_run: bool) -> Result<()> {
        let (kind, is_namespaced) = resource(&self.client, object).await?;
        let namespace = Some(text(object, "/metadata/namespace")).filter(|own| is_namespaced && !own.is_empty());
        let dry_run = if is_dry_run { "&dryRun=All" } else { "" };
        let all = DynamicObject::url_path(&kind, namespace);
        let request = http::Request::post(format!("{all}?fieldManager=kubectl-create&fieldValidation=Strict{dry_run}"));
        let request = request.header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes())?;
        self.client().request_text(request).await.map(drop).map_err(in_words)
    }

    /// Waits until the API server permits `user` what `attributes` say, or not, if not `expected`:
    /// its authorizer reads roles and bindings a moment after they are stored.
    pub async fn until_permitted(&self, user: &str, attributes: &Value, expected: bool) -> Result<()> {
        let review = json!({"metadata": {}, "spec": {"user": user, "resourceAttributes": attributes}});
        let review: SubjectAccessReview = serde_json::from_value(review)?;
        let (api, started) = (Api::<SubjectAccessReview>::all(self.client()), Instant::now());
        // Polled: nothing reports what the authorizer knows.
        while api.create(&PostParams::default(), &review).await?.status.is_none_or(|s| s.allowed != expected) {
            if started.elapsed() > wait::LIMIT {
                return Err(format!("{user} is not permitted ({expected}): {attributes}").into());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// All objects of `kind` in `namespace`, or in all if it is empty.
    pub async fn list(&self, kind: &str, namespace: &str) -> Result<Vec<Value>> {
        let (api, resource) = self.objects(kind, namespace);
        // Without a limit, it is refused while the API server fills its cache.
        let listed = api.list(&ListParams::default().limit(MOST)).await.map_err(in_words)?;
        if listed.metadata.continue_.is_some_and(|more| !more.is_empty()) {
            return Err(format!("more than {MOST} {kind}").into());
        }
        let with_kind = |item: DynamicObject| -> Result<Value> {
            let mut item = shown(item)?;
            (item["apiVersion"], item["kind"]) = (json!(resource.api_version), json!(resource.kind));
            Ok(item)
        };
        listed.items.into_iter().map(with_kind).collect()
    }

    /// Deletes all objects of `kind` in `namespace`, and waits until they are gone.
    pub async fn delete_all(&self, kind: &str, namespace: &str) -> Result<()> {
        let mut deleted = Vec::new();
        for object in self.list(kind, namespace).await? {
            let object = self.stored(&object);
            match object.begin(&DeleteParams::background()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(in_words(error)),
                Ok(uid) => deleted.push((object, uid)),
            }
        }
        for (object, uid) in deleted {
            object.gone(uid, GONE).await?;
        }
        Ok(())
    }

    fn objects(&self, kind: &str, namespace: &str) -> (Api<DynamicObject>, ApiResource) {
        let (resource, is_namespaced) = known(kind).unwrap_or_else(|| panic!("add {kind} to the known kinds"));
        let api = match namespace {
            namespace if is_namespaced && !namespace.is_empty() => {
                Api::namespaced_with(self.client(), namespace, &resource)
            }
            _ => Api::all_with(self.client(), &resource),
        };
        (api, resource)
    }
}

impl Object {
    /// What is stored, without `metadata.managedFields`.
    pub async fn read(&self) -> Result<Value> {
        shown(self.api.get(&self.name).await.map_err(in_words)?)
    }

    /// The same; `None` if it does not exist.
    pub async fn find(&self) -> Result<Option<Value>> {
        self.api.get_opt(&self.name).await.map_err(in_words)?.map(shown).transpose()
    }

    /// Changes it as `kubectl patch --type=merge` does.
    pub async fn merge(&self, patch: &Value) -> Result<()> {
        self.merge_as("kubectl-patch", patch).await
    }

    /// Changes its status.
    pub async fn merge_status(&self, status: &Value) -> Result<()> {
        let params = PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"status": status}));
        self.api.patch_status(&self.name, &params, &patch).await.map(drop).map_err(in_words)
    }

    /// Changes it by the operations of `patch`, as `manager`.
    pub async fn operate(&self, patch: &Value, manager: &str) -> Result<()> {
        let url = format!("{}/{}?fieldManager={manager}", self.api.resource_url(), self.name);
        let request = http::Request::patch(url).header("content-type", "application/json-patch+json");
        let request = request.body(patch.to_string().into_bytes())?;
        self.client.request_text(request).await.map(drop).map_err(in_words)
    }

    /// Sets `labels`; null removes one.
    pub async fn label(&self, labels: &Value) -> Result<()> {
        self.merge_as("kubectl-label", &json!({"metadata": {"labels": labels}})).await
    }

    /// Sets `annotations`; null removes one.
    pub async fn annotate(&self, annotations: &Value) -> Result<()> {
        self.merge_as("kubectl-annotate", &json!({"metadata": {"annotations": annotations}})).await
    }

    /// Deletes it, and waits until it is gone.
    pub async fn delete(&self) -> Result<()> {
        self.delete_within(GONE).await
    }

    /// Deletes it, and waits for at most `limit` until it is gone.
    pub async fn delete_within(&self, limit: Duration) -> Result<()> {
        let uid = self.begin(&DeleteParams::background()).await.map_err(in_words)?;
        self.gone(uid, limit).await
    }

    /// Deletes it if it exists, and waits until it is gone. Returns whether it existed.
    pub async fn delete_if_there(&self) -> Result<bool> {
        match self.begin(&DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(in_words(error)),
            Ok(uid) => self.gone(uid, GONE).await.map(|()| true),
        }
    }

    /// Deletes it, and doesn't wait.
    pub async fn start_deletion(&self) -> Result<()> {
        self.start_deletion_with(&DeleteParams::background()).await
    }

    /// Deletes it as `params` says, and doesn't wait.
    pub async fn start_deletion_with(&self, params: &DeleteParams) -> Result<()> {
        self.begin(params).await.map(drop).map_err(in_words)
    }

    /// Requests its deletion. Returns the uid of an object that is not gone yet.
    async fn begin(&self, params: &DeleteParams) -> kube::Result<Option<String>> {
        let answer = self.api.delete(&self.name, params).await?;
        Ok(answer.left().and_then(|object| object.uid()))
    }

    /// Waits until no object has `uid`. Another one may have its name.
    async fn gone(&self, uid: Option<String>, limit: Duration) -> Result<()> {
        let Some(uid) = uid else { return Ok(()) };
        let is_gone = |found: Option<&DynamicObject>| found.is_none_or(|object| object.uid().as_ref() != Some(&uid));
        wait::until(&self.api, &self.name, limit, "gone", is_gone).await.map(drop)
    }

    async fn merge_as(&self, manager: &str, patch: &Value) -> Result<()> {
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let changed = timed("patch", self.api.patch(&self.name, &params, &Patch::Merge(patch))).await;
        changed.map(drop).map_err(in_words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_name_and_plural() {
        for name in ["clusterprofile", "ClusterProfile", "clusterprofiles"] {
            let (resource, is_namespaced) = known(name).unwrap();
            assert_eq!((resource.api_version.as_str(), resource.plural.as_str()), (PROFILES, "clusterprofiles"));
            assert!(is_namespaced);
        }
        assert!(known("profile").is_none());
    }

    #[test]
    fn refusals_have_the_words_of_kubectl() {
        let status = |value: Value| words(&serde_json::from_value(value).unwrap());
        let forbidden = json!({"reason": "Forbidden", "message": "no", "code": 403});
        assert_eq!(status(forbidden), "Error from server (Forbidden): no");
        let mut invalid = json!({"reason": "Invalid", "message": "all", "code": 422,
            "details": {"kind": "KnativeServing", "name": "a", "causes": [{"field": "b", "message": "c"}]}});
        assert_eq!(status(invalid.clone()), "The KnativeServing \"a\" is invalid: b: c");
        invalid["details"]["causes"] = json!([{"field": "b", "message": "c"}, {"field": "d", "message": "e"}]);
        assert_eq!(status(invalid), "The KnativeServing \"a\" is invalid: \n* b: c\n* d: e");
    }
}
