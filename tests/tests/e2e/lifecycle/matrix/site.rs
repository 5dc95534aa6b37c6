//! The clusters of the matrix, and what its events do to them.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_shared::api::{Component, KnativeServing};
use knative_operator_shared::label::{APP_VERSION, ARCHIVED_RELEASE, CR_NAME};
use knative_operator_shared::name;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, project, wait};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::json;

use super::parts::{ask, asking, bundle, has_failed, is_owned, is_ready, nothing_lost, nothing_restarted, place};
use super::{ASKED, AT_FIRST, DELETED, Event, NEW, OLD, RELEASE, ROLLED_BACK, Running, State, UPGRADED};
use crate::knative_fleet;
use crate::lifecycle::TEAM;
use crate::owners::{self, PLACE};
use crate::support::{INSTALL, delete, gone, has_event, jobs_done, namespace, nothing_left};

/// What all cells share.
pub(super) struct Site {
    hub: Cluster,
    spoke: Cluster,
    product: Product,
    /// Folder of the bundle, and that of the plugins and of dumps.
    bundle: PathBuf,
    folder: PathBuf,
    /// The versions in it besides those of the small release.
    newer: &'static [&'static str],
}

impl Site {
    pub(super) async fn start(folder: &Path) -> Result<Self> {
        let (bundle_folder, plugins) = (folder.join("bundle"), folder.join("plugins"));
        fs::create_dir(&plugins)?;
        let releases = bundle(&bundle_folder, AT_FIRST)?;
        let (hub, spoke) = tokio::try_join!(Cluster::hub("matrix-hub"), Cluster::spoke("matrix"))?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let product = Product::install(&hub, &releases, values, &plugins).await?;
        product::register(&hub, &spoke, "spoke").await?;
        hub.object("clusterprofile", FLEET, "spoke").label(&json!({"env": "prod"})).await?;
        for place in [TEAM, knative_fleet::PLACE] {
            namespace(&hub, place).await?;
        }
        Ok(Self { hub, spoke, product, bundle: bundle_folder, folder: folder.to_owned(), newer: AT_FIRST })
    }

    fn servings(&self, state: State) -> Api<KnativeServing> {
        Api::namespaced(self.hub.client(), place(state))
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.spoke.client(), PLACE)
    }

    fn kill_operator(&mut self) -> Result<()> {
        self.product.stop_operator(Signal::KILL)
    }

    async fn start_operator(&mut self) -> Result<()> {
        // The Lease of a killed process is free only after it expires.
        let free = ["delete", "lease", "knative-operator", "-n", product::NAMESPACE, "--ignore-not-found"];
        self.hub.kubectl(&free, "").await?;
        self.product.start_operator(&self.hub).await
    }

    /// Restarts the operator with a bundle that has the `newer` versions.
    async fn restart(&mut self, newer: &'static [&'static str]) -> Result<()> {
        self.product.stop_operator(Signal::TERM)?;
        bundle(&self.bundle, newer)?;
        self.newer = newer;
        self.product.start_operator(&self.hub).await
    }

    /// Runs one cell.
    pub(super) async fn cell(&mut self, state: State, event: Event) -> Result<()> {
        if self.newer != AT_FIRST {
            self.restart(AT_FIRST).await?;
        }
        // Those of other cells would be taken for those of this one.
        self.hub.delete_all("events", TEAM).await?;
        let before = [objects(&self.hub.client()).await?, objects(&self.spoke.client()).await?];
        let running = self.begin(state).await?;
        self.fire(state, event).await?;
        self.end(state, event).await?;
        if state != State::Uninstalling || event == Event::Recreated {
            self.still_works(state).await?;
            if state != State::Uninstalling {
                nothing_restarted(event, &running, &owners::state(&self.spoke, PLACE).await?)?;
            }
            delete(&self.hub, &asking(state, ASKED[1], "")).await?;
        }
        for (cluster, mut before) in [&self.hub, &self.spoke].into_iter().zip(before) {
            if event == Event::Reinstalled {
                // The Pods of the operator have other names.
                let is_of_chart = |object: &String| object.contains(&format!(" {}/", product::NAMESPACE));
                before.retain(|object| !is_of_chart(object));
                before.extend(objects(&cluster.client()).await?.into_iter().filter(is_of_chart));
            }
            nothing_lost(cluster, &before).await?;
            nothing_left(cluster, &before).await?;
        }
        Ok(())
    }

    /// Brings an installation into `state`; returns what runs on the spoke.
    async fn begin(&self, state: State) -> Result<Running> {
        let is_upgrade = matches!(state, State::Upgrading | State::RollingOut);
        let (first, version) = if is_upgrade { (ASKED[0], OLD) } else { (ASKED[1], NEW) };
        let (before, after) = (asking(state, first, "first"), asking(state, ASKED[1], "first"));
        ask(&self.hub, &before).await?;
        if state == State::Installing {
            // In the middle of it.
            wait::until(&self.deployments(), DELETED, INSTALL, "created", |found| found.is_some()).await?;
            return Ok(Running::new());
        }
        self.settled(state, version).await?;
        let running = owners::state(&self.spoke, PLACE).await?;
        match state {
            State::Upgrading | State::RollingOut => ask(&self.hub, &after).await?,
            State::Uninstalling => {
                self.hub.stored(&after).start_deletion().await?;
            }
            State::Installing | State::Ready => {}
        }
        Ok(running)
    }

    /// Lets `event` happen, until it is over.
    async fn fire(&mut self, state: State, event: Event) -> Result<()> {
        let is_uninstalled = state == State::Uninstalling;
        match event {
            Event::Killed => {
                self.kill_operator()?;
                self.start_operator().await
            }
            Event::Upgraded => self.restart(UPGRADED).await,
            Event::RolledBack => self.roll_back(state).await,
            Event::WebhookAway => {
                self.product.webhook = None;
                // Changes by a fleet are refused meanwhile; the others need no webhook.
                if state != State::RollingOut {
                    self.end(state, event).await?;
                }
                self.product.start_webhook(&self.hub).await
            }
            Event::AnchorDeleted => {
                let line =
                    ["delete", "configmap", "-n", PLACE, "-l", CR_NAME, "--cascade=orphan", "--ignore-not-found"];
                self.spoke.kubectl(&line, "").await?;
                if is_uninstalled { Ok(()) } else { self.anchored().await }
            }
            Event::SpokeAway => {
                self.spoke.stop_apiserver();
                let is_away =
                    |one: &KnativeServing| has_failed(one, "TargetClusterResolved", "RemoteClusterUnreachable");
                let is_noticed = |all: &[KnativeServing]| all.is_empty() || all.iter().any(is_away);
                let noticed = wait::until_all(&self.servings(state), "", INSTALL, "unreachable", is_noticed).await;
                self.spoke.start_apiserver().await?;
                noticed.map(drop)
            }
            Event::ArchiveDeleted => {
                let line =
                    ["delete", "configmap", "-n", product::NAMESPACE, "-l", ARCHIVED_RELEASE, "--ignore-not-found"];
                self.hub.kubectl(&line, "").await?;
                self.restart(AT_FIRST).await
            }
            Event::Recreated => self.recreate(state).await,
            Event::DeploymentDeleted => {
                self.spoke.object("deployment", PLACE, DELETED).delete_if_there().await?;
                if is_uninstalled {
                    return Ok(());
                }
                let is_back = |found: Option<&Deployment>| found.is_some();
                wait::until(&self.deployments(), DELETED, INSTALL, "repaired", is_back).await.map(drop)
            }
            Event::NamespaceDeleted => {
                let line = ["delete", "namespace", PLACE, "--ignore-not-found", "--timeout=120s"];
                self.spoke.kubectl(&line, "").await.map(drop)
            }
            Event::SpokeReplaced => {
                self.spoke.replace().await?;
                product::register(&self.hub, &self.spoke, "spoke").await
            }
            Event::HubRestored => {
                let dump = self.folder.join("dump");
                self.hub.dump(&dump).await?;
                self.end(state, event).await?;
                self.hub.restore(&dump).await?;
                Ok(fs::remove_dir_all(dump)?)
            }
            Event::Reinstalled => self.reinstall().await,
        }
    }

    /// Uninstalls the chart, and installs it again with the same values.
    async fn reinstall(&mut self) -> Result<()> {
        let place = ["--namespace", product::NAMESPACE, "--wait", "--timeout", "2m"];
        self.hub.helm(&[&["uninstall", "knative-operator"], &place[..]].concat()).await?;
        let (chart, file) = (project().join("charts/knative-operator"), self.hub.dir().join("values.json"));
        let (chart, file) = (chart.display().to_string(), file.display().to_string());
        self.product.stop_operator(Signal::TERM)?;
        self.product.webhook = None;
        let install = ["install", "knative-operator", &chart, "--values", &file];
        self.hub.helm(&[&install, &place[..]].concat()).await?;
        self.product.start_webhook(&self.hub).await?;
        self.product.start_operator(&self.hub).await
    }

    /// Runs an operator without the new version, which is kept where it is installed and reported
    /// where it is not. The latter continues with the bundle.
    async fn roll_back(&mut self, state: State) -> Result<()> {
        self.restart(ROLLED_BACK).await?;
        match state {
            State::Uninstalling => return Ok(()),
            State::Ready => {
                return has_event(&self.hub, TEAM, "VersionNotInBundle", "lacks the installed version 1.2.0").await;
            }
            State::Installing | State::Upgrading | State::RollingOut => {}
        }
        let is_decided = |one: &KnativeServing| {
            // The fleet may not have reached it yet.
            let is_before = state == State::RollingOut && is_ready(one, OLD);
            let is_refused = |type_: &str| has_failed(one, type_, "Error");
            is_before || is_ready(one, NEW) || is_refused("InstallSucceeded") || is_refused("VersionMigrationEligible")
        };
        let is_settled = |all: &[KnativeServing]| all.iter().all(is_decided);
        wait::until_all(&self.servings(state), "", INSTALL, "Ready or refused", is_settled).await?;
        self.restart(AT_FIRST).await
    }

    /// Recreates the resources as a backup tool does, while no operator runs.
    async fn recreate(&mut self, state: State) -> Result<()> {
        self.kill_operator()?;
        for one in self.hub.list("knativeserving", place(state)).await? {
            let (meta, name) = (&one["metadata"], one["metadata"]["name"].as_str().unwrap_or_default());
            self.without_finalizers("knativeserving", place(state), name).await?;
            self.hub.stored(&one).delete_if_there().await?;
            let copy = json!({"apiVersion": one["apiVersion"], "kind": one["kind"], "spec": one["spec"], "metadata": {
                "name": name, "namespace": place(state), "labels": meta["labels"], "annotations": meta["annotations"],
                "ownerReferences": meta["ownerReferences"]}});
            self.hub.create(&copy, false).await?;
        }
        self.start_operator().await
    }

    async fn without_finalizers(&self, kind: &str, place: &str, name: &str) -> Result<()> {
        self.hub.object(kind, place, name).merge(&json!({"metadata": {"finalizers": null}})).await
    }

    /// Waits until the anchor exists again and owns all Deployments.
    async fn anchored(&self) -> Result<()> {
        let maps = Api::<ConfigMap>::namespaced(self.spoke.client(), PLACE);
        let is_new = |maps: &[ConfigMap]| matches!(maps, [one] if one.metadata.deletion_timestamp.is_none());
        let anchors = wait::until_all(&maps, CR_NAME, INSTALL, "one anchor", is_new).await?;
        let uid = anchors.first().and_then(ResourceExt::uid);
        let are_owned = |all: &[Deployment]| !all.is_empty() && all.iter().all(|one| is_owned(one, uid.as_deref()));
        wait::until_all(&self.deployments(), "", INSTALL, "owned by the anchor", are_owned).await.map(drop)
    }

    /// Waits for the end of what `state` was, after `event`.
    async fn end(&self, state: State, event: Event) -> Result<()> {
        if state == State::Uninstalling && event != Event::Recreated {
            return gone(&self.hub, &asking(state, ASKED[1], "")).await;
        }
        self.settled(state, NEW).await
    }

    /// Waits until the resource, and its fleet, is Ready with `version`, and checks that the
    /// spoke has what the status says.
    async fn settled(&self, state: State, version: &str) -> Result<()> {
        if state == State::RollingOut {
            let is_done =
                |s: &KnativeFleetStatus| knative_fleet::has(s, "Ready", "Ready") && (s.updated, s.ready) == (1, 1);
            knative_fleet::status(&self.hub, "ready", is_done).await?;
        }
        let (what, is_done) =
            (format!("Ready with {version}"), |all: &[KnativeServing]| matches!(all, [one] if is_ready(one, version)));
        let servings = wait::until_all(&self.servings(state), "", INSTALL, &what, is_done).await?;
        let serving = servings.first().map(ResourceExt::name_any).unwrap_or_default();
        let anchor = jobs_done(&self.spoke, PLACE, &name::anchor(Component::Serving, &serving)).await?;
        for one in self.deployments().list(&ListParams::default()).await? {
            let label = one.labels().get(APP_VERSION);
            if label.map(String::as_str) != Some(version) || !is_owned(&one, anchor.uid().as_deref()) {
                return Err(format!("{what}, but Deployment {} has {:?}", one.name_any(), one.metadata).into());
            }
        }
        let archive = Api::<ConfigMap>::namespaced(self.hub.client(), product::NAMESPACE);
        let kept = format!("{RELEASE}{version}");
        wait::until(&archive, &kept, INSTALL, "archived", |found| found.is_some()).await.map(drop)
    }

    /// Checks that a change reaches the spoke by the time that the status says so.
    async fn still_works(&self, state: State) -> Result<()> {
        ask(&self.hub, &asking(state, ASKED[1], "second")).await?;
        self.settled(state, NEW).await?;
        let map = Api::<ConfigMap>::namespaced(self.spoke.client(), PLACE).get("config-defaults").await?;
        let setting = map.data.and_then(|mut data| data.remove("matrix"));
        if setting.as_deref() == Some("second") { Ok(()) } else { Err(format!("Ready, but with {setting:?}").into()) }
    }

    /// Removes what a failed cell left: the resources, and the spoke, which is replaced by an
    /// empty one.
    pub(super) async fn recover(&mut self) -> Result<()> {
        if self.product.operator.process.ended().is_none() {
            self.kill_operator()?;
        }
        self.product.start_webhook(&self.hub).await?;
        for (kind, place) in
            [("knativefleet", knative_fleet::PLACE), ("knativeserving", knative_fleet::PLACE), ("knativeserving", TEAM)]
        {
            for one in self.hub.list(kind, place).await? {
                let object = self.hub.stored(&one);
                // The garbage collector may be faster.
                if let Err(error) = object.start_deletion().await
                    && object.find().await?.is_some()
                {
                    return Err(error);
                }
            }
            for one in self.hub.list(kind, place).await? {
                self.without_finalizers(kind, place, one["metadata"]["name"].as_str().unwrap_or_default()).await?;
            }
        }
        self.spoke.replace().await?;
        product::register(&self.hub, &self.spoke, "spoke").await?;
        bundle(&self.bundle, AT_FIRST)?;
        self.newer = AT_FIRST;
        self.start_operator().await
    }
}
