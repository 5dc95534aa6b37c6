//! A hub with the operator, three spokes and a fleet, all behind proxies that inject faults.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Namespace;
use knative_operator_shared::api::Component;
use knative_operator_tests::applied::Applied;
use knative_operator_tests::chaos::Chaos;
use knative_operator_tests::clock::Clock;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::gate::Gate;
use knative_operator_tests::product::images::OPERATOR_IMAGE;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, releases};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tempfile::TempDir;

use super::config::Config;
use super::owners::{Claims, Declared, check_single, recorded};
use super::site::{Resource, Site, State, create_namespaces, differences, marked, objects};
use super::undisturbed::Undisturbed;

/// Time limit from the end of the faults until all is as declared, with a margin for a loaded
/// machine: seconds are expected.
pub const CONVERGENCE: Duration = Duration::from_secs(240);
/// Interval of reads.
pub const INTERVAL: Duration = Duration::from_millis(200);
/// Time limit for a status Ready while objects are not as declared, without faults, with such a
/// margin.
const TRUTH: Duration = Duration::from_secs(40);

/// The uids of objects, by kind, namespace and name.
pub type Uids = HashMap<String, String>;

pub struct World {
    pub hub: Arc<Cluster>,
    pub product: Product,
    pub clock: Clock,
    pub chaos: Arc<Chaos>,
    pub sites: Vec<Site>,
    pub resources: Vec<Resource>,
    _gate: Gate,
    /// The spokes without faults, if needed.
    pub undisturbed: Option<Arc<Undisturbed>>,
    _dir: TempDir,
}

impl World {
    /// Starts it, with spokes without faults if `undisturbed`.
    pub async fn start(number: usize, undisturbed: bool) -> Result<Self> {
        let components = [Component::Serving, Component::Eventing, Component::Serving];
        let names: Vec<String> = (0..components.len()).map(|site| format!("chaos-{number}-{site}")).collect();
        let (mut hub, spokes, without_faults) = tokio::try_join!(
            Cluster::hub("chaos"),
            try_join_all(names.iter().map(|name| Cluster::spoke(name))),
            async { if undisturbed { Undisturbed::spokes().await.map(Some) } else { Ok(None) } },
        )?;
        let chaos = Arc::new(Chaos::default());
        let gate = Gate::open(&hub, &chaos).await?;
        hub.set_pod_endpoint(gate.url.clone(), gate.authority.clone());
        let dir = tempfile::tempdir()?;
        let clock = Clock::new(dir.path())?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let images = [(OPERATOR_IMAGE.to_owned(), clock.program("knative-operator", dir.path())?)];
        let product = Product::install_with(&hub, &releases::small(), values, images.into()).await?;
        let mut resources: Vec<_> =
            names.iter().zip(components).map(|(name, c)| Resource::new(name, "one", c.plural(), c)).collect();
        resources.push(Resource::new("chaos-fleet", "one", "knativefleets", Component::Eventing));
        // The first one has the same anchor as the resource that it competes with.
        let seconds = names.iter().zip(components).zip(["one", "two", "two"]);
        let seconds: Vec<_> =
            seconds.map(|((site, c), name)| Resource::new(&format!("{site}-second"), name, c.plural(), c)).collect();
        let all: Vec<_> = resources.iter().chain(&seconds).map(|resource| resource.namespace.as_str()).collect();
        create_namespaces(&hub, &all).await?;
        let hub = Arc::new(hub);
        let sites = (0..).zip(names).zip(spokes).zip(seconds);
        let sites = sites.map(async |(((index, name), spoke), second)| {
            // The fleet selects the clusters for Serving: its component is Eventing.
            let in_fleet = second.component == Component::Serving;
            let resources = if in_fleet { vec![index, components.len()] } else { vec![index] };
            Site::register(&hub, name, spoke, resources, second, in_fleet).await
        });
        let undisturbed = async {
            let Some(spokes) = without_faults else { return Ok(None) };
            Undisturbed::register(&hub, spokes).await.map(|spokes| Some(Arc::new(spokes)))
        };
        let (sites, undisturbed) = tokio::try_join!(try_join_all(sites), undisturbed)?;
        Ok(Self { hub, product, clock, chaos, sites, resources, _gate: gate, undisturbed, _dir: dir })
    }

    async fn expected(&self, config: Config) -> Result<State> {
        self.undisturbed.as_ref().ok_or("no spokes without faults")?.expected(config).await
    }

    /// The resources that use `site` while they exist.
    fn users<'w>(&'w self, site: &'w Site) -> impl Iterator<Item = &'w Resource> {
        site.resources.iter().map(move |index| &self.resources[*index]).chain([&site.second])
    }

    /// The resources that use `site` and exist.
    pub async fn declared<'w>(&'w self, site: &'w Site) -> Result<Vec<Declared<'w>>> {
        let mut declared = Vec::new();
        for resource in self.users(site) {
            let Some(config) = *resource.declared.lock().await else { continue };
            declared.push(Declared { resource, objects: self.expected(config).await? });
        }
        Ok(declared)
    }

    /// Waits until `site` has what the owners of its installations declare; returns the time, and
    /// the uids of the objects.
    pub async fn converge(&self, site: &Site) -> Result<(Duration, Uids)> {
        let declared = self.declared(site).await?;
        let (started, mut untrue) = (Instant::now(), None);
        loop {
            let owners = recorded(site.spoke.read().await.client()).await?;
            check_single(&owners)?;
            let claims = Claims::of(&declared, &owners);
            let is_installed = claims.are_reported(&self.hub).await?;
            let is_late = started.elapsed() > CONVERGENCE;
            if !is_installed && !is_late {
                untrue = None;
                tokio::time::sleep(INTERVAL).await;
                continue;
            }
            let (expected, objects) = (claims.expected(), objects(&*site.spoke.read().await).await?);
            let mut found = marked(&objects);
            // Definitions of earlier versions stay, with the users' objects.
            found.retain(|name, _| !name.starts_with("CustomResourceDefinition ") || expected.contains_key(name));
            if is_installed && found == expected {
                return Ok((started.elapsed(), uids(objects)));
            }
            untrue = is_installed.then(|| untrue.unwrap_or_else(Instant::now));
            let is_untrue = untrue.is_some_and(|since| since.elapsed() > TRUTH) && !expected.is_empty();
            if is_late || is_untrue {
                let what = if is_untrue { "Ready, but not as declared" } else { "not as declared" };
                let differences = differences(&expected, &found);
                let mut message = format!("{}: {what}: {differences}; {:?}\n", site.name, claims.objections);
                for resource in self.users(site) {
                    message.push_str(&resource.status(&self.hub).await?);
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
        let seconds = self.sites.iter().map(|site| &site.second);
        try_join_all(self.resources.iter().chain(seconds).map(|resource| resource.set(&self.hub, None))).await?;
        try_join_all(self.sites.iter().map(|site| self.converge(site))).await.map(drop)
    }

    /// The uids of the objects of `site`.
    pub async fn uids(&self, site: &Site) -> Result<Uids> {
        Ok(uids(objects(&*site.spoke.read().await).await?))
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
}

fn uids(objects: BTreeMap<String, Applied>) -> Uids {
    objects.into_iter().map(|(name, applied)| (name, applied.uid)).collect()
}

/// The newest resourceVersion of `cluster`.
pub async fn version(cluster: &Cluster) -> Result<u64> {
    let list = Api::<Namespace>::all(cluster.client()).list_metadata(&ListParams::default().limit(1)).await?;
    Ok(list.metadata.resource_version.unwrap_or_default().parse()?)
}
