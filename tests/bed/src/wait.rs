//! Waits by watches with a deadline.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::Result;
use crate::waits::timed;

/// Time limit of what takes moments, or a few seconds, on an idle machine: it ends what hangs. Some
/// machines of CI are ten times slower.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Watches the object `name` until `holds` is true for it (`None` if it does not exist); returns
/// the object. After `limit`, the error has `what` and the last state of the object.
pub async fn until<K>(
    api: &Api<K>,
    name: &str,
    limit: Duration,
    what: &str,
    holds: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut last = None;
    let watch = async {
        let stream = watcher::watch_object(api.clone(), name);
        pin_mut!(stream);
        while let Some(event) = stream.next().await {
            let Ok(object) = event else {
                // The API server is unavailable: retry until the deadline.
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            };
            last.clone_from(&object);
            if holds(object.as_ref()) {
                return Ok(object);
            }
        }
        Err("the watch ended".into())
    };
    timed(what, tokio::time::timeout(limit, watch))
        .await
        .unwrap_or_else(|_| Err(format!("{name}: not {what} after {limit:?}").into()))
        .map_err(|error: crate::Error| {
            format!("{error}\nlast seen: {}", last.as_ref().map_or("absent".to_owned(), |o| format!("{o:#?}"))).into()
        })
}

/// Watches the objects with `labels` in `api` until `holds` is true for all of them.
pub async fn until_all<K>(
    api: &Api<K>,
    labels: &str,
    limit: Duration,
    what: &str,
    holds: impl Fn(&[K]) -> bool,
) -> Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let (reader, writer) = kube::runtime::reflector::store();
    let stream = kube::runtime::reflector(writer, watcher(api.clone(), watcher::Config::default().labels(labels)))
        .default_backoff();
    pin_mut!(stream);
    let all = || reader.state().iter().map(|o| K::clone(o)).collect::<Vec<_>>();
    let watch = async {
        let mut listed = false;
        while let Some(event) = stream.next().await {
            listed |= matches!(event, Ok(watcher::Event::InitDone));
            if listed && holds(&all()) {
                return;
            }
        }
    };
    match timed(what, tokio::time::timeout(limit, watch)).await {
        Ok(()) => Ok(all()),
        Err(_) => Err(format!(
            "not {what} after {limit:?}; there are {:?}",
            all().iter().filter_map(|o| o.meta().name.clone()).collect::<Vec<_>>()
        )
        .into()),
    }
}

/// Watches until all CustomResourceDefinitions are established. `kubectl wait` fails for one that
/// was created a moment ago, because its `status.conditions` is `null`.
pub async fn established(client: Client) -> Result<()> {
    let holds = |crd: &CustomResourceDefinition| {
        let conditions = crd.status.as_ref().and_then(|s| s.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Established" && c.status == "True"))
    };
    until_all(&Api::all(client), "", LIMIT, "established", |all| all.iter().all(holds)).await?;
    Ok(())
}

/// Whether a Deployment is available, or has no desired replicas.
pub fn available(deployment: Option<&Deployment>) -> bool {
    let conditions = deployment.and_then(|d| d.status.as_ref()).and_then(|s| s.conditions.as_ref());
    let holds =
        |c: &DeploymentCondition| c.type_.as_deref() == Some("Available") && c.status.as_deref() == Some("True");
    deployment.is_some_and(|d| d.spec.replicas == Some(0)) || conditions.is_some_and(|all| all.iter().any(holds))
}
