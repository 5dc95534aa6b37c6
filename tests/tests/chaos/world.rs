//! A hub with the operator, three spokes and a fleet, all behind proxies that inject faults.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Namespace;
use knative_operator_shared::api::Component;
use knative_operator_tests::chaos::{Chaos, Clock};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::gate::Gate;
use knative_operator_tests::kubelet::images::OPERATOR_IMAGE;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::{Result, releases};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Mutex, RwLock};

use super::config::{Config, FLEET_LABEL};
use super::site::{Resource, Site, State, contents, differences, is_ready, objects};

/// What undisturbed clusters have, by configuration: all worlds share it.
static EXPECTED: LazyLock<Mutex<HashMap<Config, State>>> = LazyLock::new(Mutex::default);
/// Time limit from the end of the faults until all is as declared.
pub const CONVERGENCE: Duration = Duration::from_secs(60);
/// Interval of reads.
const INTERVAL: Duration = Duration::from_millis(200);
/// Time limit for a status Ready while objects are not as declared, without faults.
const TRUTH: Duration = Duration::from_secs(10);

pub struct World {
    pub hub: Cluster,
    pub product: Product,
    pub clock: Clock,
    pub chaos: Arc<Chaos>,
    pub sites: Vec<Site>,
    pub resources: Vec<Resource>,
    _gate: Gate,
    /// A spoke without faults for each component, if needed.
    calm: Vec<Cluster>,
    _dir: TempDir,
}

impl World {
    /// Starts it, with spokes without faults if `calm`.
    pub async fn start(number: usize, calm: bool) -> Result<Self> {
        let components = [Component::Serving, Component::Eventing, Component::Serving];
        let names: Vec<String> = (0..components.len()).map(|site| format!("chaos-{number}-{site}")).collect();
        let calm: &[&str] = if calm { &["calm-serving", "calm-eventing"] } else { &[] };
        let (mut hub, spokes, calm) = tokio::try_join!(
            Cluster::hub("chaos"),
            try_join_all(names.iter().map(|name| Cluster::spoke(name))),
            try_join_all(calm.iter().map(|name| Cluster::spoke(name))),
        )?;
        let chaos = Arc::new(Chaos::default());
        let gate = Gate::open(&hub, &chaos).await?;
        hub.set_pod_endpoint(gate.url.clone(), gate.authority.clone());
        let dir = tempfile::tempdir()?;
        let clock = Clock::new(dir.path())?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let images = [(OPERATOR_IMAGE.to_owned(), clock.program.clone())];
        let product = Product::install_with(&hub, &releases::small(), values, images.into()).await?;
        let (mut sites, mut resources) = (Vec::new(), Vec::new());
        for ((name, mut spoke), component) in names.into_iter().zip(spokes).zip(components) {
            let chaos = Arc::new(Chaos::default());
            let gate = Gate::open(&spoke, &chaos).await?;
            spoke.set_pod_endpoint(gate.url.clone(), gate.authority.clone());
            product::register(&hub, &spoke, &name).await?;
            let mut on_site = vec![resources.len()];
            if component == Component::Serving {
                hub.kubectl(&["label", "clusterprofile", &name, "-n", FLEET, FLEET_LABEL], "").await?;
                on_site.push(components.len());
            }
            for canonical in Component::ALL.map(Component::canonical) {
                spoke.kubectl(&["create", "namespace", canonical], "").await?;
            }
            resources.push(Resource {
                namespace: name.clone(),
                plural: component.plural(),
                component,
                declared: Mutex::default(),
                history: Mutex::default(),
            });
            sites.push(Site { name, spoke: RwLock::new(spoke), chaos, _gate: gate, resources: on_site });
        }
        resources.push(Resource {
            namespace: "chaos-fleet".to_owned(),
            plural: "knativefleets",
            component: Component::Eventing,
            declared: Mutex::default(),
            history: Mutex::default(),
        });
        for spoke in &calm {
            product::register(&hub, spoke, spoke.name()).await?;
            for component in Component::ALL {
                spoke.kubectl(&["create", "namespace", component.canonical()], "").await?;
            }
        }
        let namespaces = resources.iter().map(|resource| resource.namespace.as_str());
        for namespace in namespaces.chain(calm.iter().map(Cluster::name)) {
            hub.kubectl(&["create", "namespace", namespace], "").await?;
        }
        Ok(Self { hub, product, clock, chaos, sites, resources, _gate: gate, calm, _dir: dir })
    }

    /// What an undisturbed cluster has for `config`.
    pub async fn expected(&self, config: Config) -> Result<State> {
        let mut known = EXPECTED.lock().await;
        if let Some(state) = known.get(&config) {
            return Ok(state.clone());
        }
        let calm = &self.calm[usize::from(config.component == Component::Eventing)];
        let resource = config.resource(calm.name(), calm.name());
        self.hub.kubectl(&["apply", "-f", "-"], &resource.to_string()).await?;
        let deadline = Instant::now() + CONVERGENCE;
        while !is_ready(&self.hub, config.component.plural(), calm.name(), config.version).await? {
            assert!(Instant::now() < deadline, "{config:?} is not installed on {}", calm.name());
            tokio::time::sleep(INTERVAL).await;
        }
        // Until the Jobs that remove earlier objects are complete.
        let mut state = contents(&objects(calm).await?);
        loop {
            tokio::time::sleep(INTERVAL * 4).await;
            let next = contents(&objects(calm).await?);
            if next == state {
                break;
            }
            state = next;
        }
        known.insert(config, state.clone());
        Ok(state)
    }

    /// Waits until `site` has what it declares; returns the time.
    pub async fn converge(&self, site: &Site) -> Result<Duration> {
        let mut expected = State::new();
        for resource in &site.resources {
            if let Some(config) = *self.resources[*resource].declared.lock().await {
                expected.extend(self.expected(config).await?);
            }
        }
        let (started, mut untrue) = (Instant::now(), None);
        loop {
            let mut is_installed = true;
            for resource in &site.resources {
                is_installed &= self.resources[*resource].is_installed(&self.hub).await?;
            }
            let is_late = started.elapsed() > CONVERGENCE;
            if !is_installed && !is_late {
                untrue = None;
                tokio::time::sleep(INTERVAL).await;
                continue;
            }
            let mut found = contents(&self.objects(site).await?);
            // Definitions of earlier versions stay, with the users' objects.
            found.retain(|name, _| !name.starts_with("CustomResourceDefinition ") || expected.contains_key(name));
            if is_installed && found == expected {
                return Ok(started.elapsed());
            }
            untrue = is_installed.then(|| untrue.unwrap_or_else(Instant::now));
            let is_untrue = untrue.is_some_and(|since| since.elapsed() > TRUTH) && !expected.is_empty();
            if is_late || is_untrue {
                let what = if is_untrue { "Ready, but not as declared" } else { "not as declared" };
                let mut message = format!("{}: {what}: {}", site.name, differences(&expected, &found));
                for resource in &site.resources {
                    message.push_str(&self.resources[*resource].status(&self.hub).await?);
                }
                let (_, workloads) =
                    site.spoke.read().await.kubectl_output(&["get", "jobs,pods", "-A", "-o", "wide"], "").await;
                message.push_str(&workloads);
                return Err(message.into());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Deletes all resources, after which nothing is left.
    pub async fn empty(&self) -> Result<()> {
        try_join_all(self.resources.iter().map(|resource| resource.set(&self.hub, None))).await?;
        try_join_all(self.sites.iter().map(|site| self.converge(site))).await.map(drop)
    }

    /// The uids of the objects of `site`.
    pub async fn uids(&self, site: &Site) -> Result<HashMap<String, String>> {
        let objects = objects(&*site.spoke.read().await).await?;
        Ok(objects.into_iter().map(|(name, applied)| (name, applied.uid)).collect())
    }

    /// Names of the objects of `site` that all configurations had since the history was cleared.
    pub async fn kept(&self, site: &Site) -> Result<BTreeSet<String>> {
        let mut kept = BTreeSet::new();
        for resource in &site.resources {
            let history = self.resources[*resource].history.lock().await.clone();
            let mut common: Option<BTreeSet<String>> = None;
            for config in history {
                let names = match config {
                    Some(config) => self.expected(config).await?.into_keys().collect(),
                    None => BTreeSet::new(),
                };
                common = Some(common.map_or(names.clone(), |common| &common & &names));
            }
            kept.extend(common.unwrap_or_default());
        }
        Ok(kept)
    }

    async fn objects(
        &self,
        site: &Site,
    ) -> Result<std::collections::BTreeMap<String, knative_operator_tests::applied::Applied>> {
        objects(&*site.spoke.read().await).await
    }
}

/// The newest resourceVersion of `cluster`.
pub async fn version(cluster: &Cluster) -> Result<u64> {
    let list = Api::<Namespace>::all(cluster.client()).list_metadata(&ListParams::default().limit(1)).await?;
    Ok(list.metadata.resource_version.unwrap_or_default().parse()?)
}
