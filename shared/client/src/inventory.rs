//! The kinds of the Cluster Inventory API (KEP-4322, KEP-5313), read in the newest version that
//! both the API server and this operator know. The choice follows the definition: no restart is
//! needed when it serves another version.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Status};
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Client};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::watch::restarting;

const GROUP: &str = "multicluster.x-k8s.io";
/// Versions that this operator reads, the newest first. They have the same fields, apart from
/// `credentialProviders`, which v1alpha2 of ClusterProfile lacks.
const VERSIONS: [&str; 2] = ["v1alpha2", "v1alpha1"];
/// Interval at which a watch that reports events asks for a newer version: not at rest. A version
/// that is still served has the same objects.
const CHECK: Duration = Duration::from_secs(300);
/// Number of times that discovery is asked for another version after one is gone, and the delay
/// between them: discovery follows the definition a moment later.
const LAGS: u32 = 10;
const LAG: Duration = Duration::from_millis(200);

/// Time limit of a question for a newer version.
const ANSWER: Duration = Duration::from_secs(2);

type Item = Result<Event<DynamicObject>, Error>;

/// A kind of the Cluster Inventory API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InventoryKind {
    /// ClusterProfiles.
    ClusterProfile,
    /// PlacementDecisions.
    PlacementDecision,
}

impl InventoryKind {
    fn plural(self) -> &'static str {
        match self {
            Self::ClusterProfile => "clusterprofiles",
            Self::PlacementDecision => "placementdecisions",
        }
    }

    fn resource(self, version: &str) -> ApiResource {
        let kind = match self {
            Self::ClusterProfile => "ClusterProfile",
            Self::PlacementDecision => "PlacementDecision",
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, kind), self.plural())
    }

    /// The resource in the newest version that this operator reads.
    pub fn newest(self) -> ApiResource {
        self.resource(VERSIONS[0])
    }

    /// That the API server serves no version that this operator reads.
    pub fn not_served(self) -> String {
        format!(
            "the CRD {}.{GROUP} is not installed on this cluster, or has no version that this operator reads ({})",
            self.plural(),
            VERSIONS.join(", ")
        )
    }

    /// The resource in the newest version that the API server serves and this operator reads.
    ///
    /// # Errors
    ///
    /// Those of the API server; status 404 if there is no such version.
    pub async fn served(self, client: &Client) -> kube::Result<ApiResource> {
        let request = http::Request::get(format!("/apis/{GROUP}")).body(Vec::new());
        let group = match client.request::<APIGroup>(request.map_err(kube::Error::HttpError)?).await {
            Err(error) if is_not_found(&error) => APIGroup::default(),
            group => group?,
        };
        let is_served = |version: &&str| group.versions.iter().any(|served| served.version == *version);
        for version in VERSIONS.into_iter().filter(is_served) {
            match client.list_api_group_resources(&format!("{GROUP}/{version}")).await {
                Ok(list) if list.resources.iter().any(|resource| resource.name == self.plural()) => {
                    return Ok(self.resource(version));
                }
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => {}
            }
        }
        Err(kube::Error::Api(Box::new(Status { code: 404, message: self.not_served(), ..Status::default() })))
    }

    /// The objects in `namespace`, or in all.
    ///
    /// # Errors
    ///
    /// Those of the API server; status 404 if it serves no version that this operator reads.
    pub async fn list(self, client: &Client, namespace: Option<&str>) -> kube::Result<Vec<DynamicObject>> {
        let resource = self.served(client).await?;
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// Events of the objects in all namespaces that `config` selects. After a failure, the watch
    /// begins again with a list, after a delay of `backoff`. The failure has status 404 if the API
    /// server serves no version that this operator reads.
    pub fn watch(self, client: &Client, config: Config, backoff: Backoff) -> BoxStream<'static, Item> {
        let client = client.clone();
        let start = move || {
            let (client, config) = (client.clone(), config.clone());
            stream::unfold(None, move |watch| next(self, client.clone(), config.clone(), watch)).boxed()
        };
        restarting(backoff, start)
    }

    /// The resource in another version than `gone`, if the API server serves one now.
    async fn other(self, client: &Client, gone: &ApiResource) -> kube::Result<Option<ApiResource>> {
        for _ in 0..LAGS {
            match self.served(client).await {
                Ok(other) if other != *gone => return Ok(Some(other)),
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => tokio::time::sleep(LAG).await,
            }
        }
        Ok(None)
    }

    /// The resource in a newer version than `known`, if the API server serves one whose objects can
    /// be listed.
    async fn newer(self, client: &Client, known: &ApiResource) -> Option<ApiResource> {
        let newest = self.served(client).await.ok().filter(|newest| newest != known)?;
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &newest);
        api.list_metadata(&ListParams::default().limit(1)).await.is_ok().then_some(newest)
    }
}

/// A watch of one version.
struct VersionWatch {
    resource: ApiResource,
    events: BoxStream<'static, Item>,
    /// When to ask for a newer version.
    check: Instant,
}

impl VersionWatch {
    fn start(client: &Client, resource: ApiResource, config: &Config) -> Self {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        Self { resource, events: watcher(api, config.clone()).boxed(), check: Instant::now() + CHECK }
    }
}

/// The next event of `watch`, or of one of another version if its own is gone or older than
/// another.
async fn next(
    kind: InventoryKind,
    client: Client,
    config: Config,
    watch: Option<VersionWatch>,
) -> Option<(Item, Option<VersionWatch>)> {
    let start = |resource| VersionWatch::start(&client, resource, &config);
    let mut watch = match watch {
        Some(watch) => watch,
        None => match kind.served(&client).await {
            Ok(resource) => start(resource),
            Err(error) => return Some((Err(Error::InitialListFailed(error)), None)),
        },
    };
    loop {
        let event = watch.events.next().await?;
        let other = if event.as_ref().is_err_and(is_gone) {
            match kind.other(&client, &watch.resource).await {
                Ok(other) => other,
                // It may be served in another version.
                Err(error) => return Some((Err(Error::InitialListFailed(error)), Some(watch))),
            }
        } else if event.is_ok() && Instant::now() >= watch.check {
            watch.check = Instant::now() + CHECK;
            // The event waits for it.
            tokio::time::timeout(ANSWER, kind.newer(&client, &watch.resource)).await.ok().flatten()
        } else {
            None
        };
        let Some(other) = other else { return Some((event, Some(watch))) };
        tracing::info!(kind = kind.plural(), version = other.version, "reading another version");
        watch = start(other);
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the version that was read is not served.
fn is_gone(error: &Error) -> bool {
    match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            is_not_found(error)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::watch;

    use super::*;

    type Versions = &'static [&'static str];

    /// An API server with one ClusterProfile, in the versions `served`, and the paths that it was
    /// asked for. A watch ends when its version is not served any more.
    fn hub(served: &watch::Receiver<Versions>) -> (Client, Arc<Mutex<Vec<String>>>) {
        let (served, paths) = (served.clone(), Arc::<Mutex<Vec<String>>>::default());
        let log = Arc::clone(&paths);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (mut served, log) = (served.clone(), Arc::clone(&log));
            async move {
                let path = request.uri().path().to_owned();
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
                log.lock().unwrap().push(path.clone());
                let version = path.split('/').nth(3).unwrap_or_default().to_owned();
                if is_watch {
                    // Err means that the test has ended.
                    let _ = served.wait_for(|all| !all.contains(&version.as_str())).await;
                }
                let all: Vec<&str> = served.borrow().to_vec();
                let is_group = version.is_empty();
                let is_served = if is_group { !all.is_empty() } else { all.contains(&version.as_str()) };
                let body = if is_group {
                    let versions: Vec<_> =
                        all.iter().map(|v| json!({"groupVersion": format!("{GROUP}/{v}"), "version": v})).collect();
                    json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": versions})
                } else if path.ends_with("/clusterprofiles") {
                    let name = format!("of-{version}");
                    json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "ClusterProfileList",
                        "metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": name, "namespace": "n"}}]})
                } else {
                    json!({"kind": "APIResourceList", "groupVersion": format!("{GROUP}/{version}"), "resources": [
                        {"name": "clusterprofiles", "singularName": "", "namespaced": true, "kind": "ClusterProfile", "verbs": []}]})
                };
                let (code, body) = if is_served {
                    (200, body)
                } else {
                    (
                        404,
                        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404}),
                    )
                };
                let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        (Client::new(service, "default"), paths)
    }

    #[tokio::test]
    async fn newest_served_version_is_chosen() {
        let cases: [(Versions, Option<&str>); 5] = [
            (&["v1alpha1", "v1alpha2"], Some("v1alpha2")),
            (&["v1alpha2"], Some("v1alpha2")),
            (&["v1alpha1"], Some("v1alpha1")),
            (&["v1beta1"], None),
            (&[], None),
        ];
        for (versions, expected) in cases {
            let (_served, receiver) = watch::channel::<Versions>(versions);
            let (client, _) = hub(&receiver);
            let chosen = InventoryKind::ClusterProfile.served(&client).await;
            assert_eq!(chosen.as_ref().ok().map(|resource| resource.version.as_str()), expected);
            assert!(expected.is_some() || chosen.is_err_and(|error| is_not_found(&error)));
            // Another kind of the group is no version of this one.
            let other = InventoryKind::PlacementDecision.served(&client).await;
            assert!(other.is_err_and(|error| is_not_found(&error)));
            let listed = InventoryKind::ClusterProfile.list(&client, None).await.unwrap_or_default();
            let names: Vec<String> = listed.into_iter().filter_map(|profile| profile.metadata.name).collect();
            let expected: Vec<String> = expected.map(|version| format!("of-{version}")).into_iter().collect();
            assert_eq!(names, expected);
        }
    }

    #[tokio::test]
    async fn watch_follows_the_definition() {
        let (served, receiver) = watch::channel::<Versions>(&["v1alpha1"]);
        let (client, paths) = hub(&receiver);
        let backoff = Backoff::new(Duration::ZERO, Duration::ZERO);
        let mut events = InventoryKind::ClusterProfile.watch(&client, Config::default(), backoff);
        // The next failure, or the name of the next object.
        let mut next = async || loop {
            match events.next().await {
                Some(Ok(Event::InitApply(profile))) => return profile.metadata.name.unwrap_or_default(),
                Some(Err(error)) => return if is_gone(&error) { "missing".to_owned() } else { error.to_string() },
                _ => {}
            }
        };
        assert_eq!(next().await, "of-v1alpha1");
        // One that is replaced is not missing for a moment: its objects would be, too.
        served.send_replace(&["v1alpha2"]);
        assert_eq!(next().await, "of-v1alpha2");
        paths.lock().unwrap().clear();
        served.send_replace(&[]);
        assert_eq!(next().await, "missing");
        served.send_replace(&["v1alpha1", "v1alpha2"]);
        assert_eq!(next().await, "of-v1alpha2");
        let old = |path: &String| path.ends_with("v1alpha1/clusterprofiles");
        assert!(!paths.lock().unwrap().iter().any(old), "the old version is not read");
    }
}
