//! The views, with a real hub and a real spoke.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::{Result, releases};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::page::Page;
use crate::run;

const PLACE: &str = "platform";

struct Scene {
    hub: Cluster,
    spoke: Cluster,
    _product: Product,
    _plugins: tempfile::TempDir,
}

impl Scene {
    async fn start() -> Result<Self> {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("ui-hub"), Cluster::spoke("ui-spoke"))?;
        let plugins = tempfile::tempdir()?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let product = Product::install(&hub, &releases::small(), values, plugins.path()).await?;
        hub.namespace(PLACE).await?;
        Ok(Self { hub, spoke, _product: product, _plugins: plugins })
    }

    async fn apply(&self, object: &Value) -> Result<()> {
        self.hub.apply(object).await
    }

    async fn register(&self, name: &str) -> Result<()> {
        product::register(&self.hub, &self.spoke, name).await?;
        self.hub.object("clusterprofile", FLEET, name).label(&json!({"env": "prod"})).await
    }

    /// A kubeconfig with the contexts of hub and spoke.
    fn both(&self) -> Result<PathBuf> {
        let path = self.hub.dir().join("both.kubeconfig");
        let [mut hub, spoke] = [self.hub.kubeconfig(), self.spoke.kubeconfig()].map(|path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            serde_json::from_str::<Value>(&text).unwrap_or_default()
        });
        for (list, key) in [("clusters", "cluster"), ("users", "user"), ("contexts", "context")] {
            let mut entry = spoke[list][0].clone();
            entry["name"] = json!("spoke");
            if key == "context" {
                entry[key]["cluster"] = json!("spoke");
                entry[key]["user"] = json!("spoke");
            }
            hub[list].as_array_mut().ok_or("no list")?.push(entry);
        }
        std::fs::write(&path, hub.to_string())?;
        Ok(path)
    }

    /// A kubeconfig of a user who may only read the custom resources.
    async fn reader(&self) -> Result<PathBuf> {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [
            {"apiGroups": ["operator.knative.dev"], "resources": ["knativeservings", "knativeeventings"], "verbs": ["list", "watch"]}]});
        self.apply(&role).await?;
        self.hub.kubectl(&["create", "serviceaccount", "reader", "-n", PLACE], "").await?;
        let account = format!("--serviceaccount={PLACE}:reader");
        self.hub.kubectl(&["create", "clusterrolebinding", "reader", "--clusterrole=reader", &account], "").await?;
        let token = self.hub.token(PLACE, "reader", 3600).await?;
        let path = self.hub.dir().join("reader.kubeconfig");
        std::fs::write(
            &path,
            kubeconfig("reader", &self.hub.url(), self.hub.authority(), PLACE, &User::Token(&token)),
        )?;
        Ok(path)
    }
}

fn serving(name: &str, profile: Option<&str>) -> Value {
    let mut spec = json!({"version": "1.1.0", "ingress": {"kourier": {"enabled": true}},
        "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}}});
    if let Some(profile) = profile {
        spec["clusterProfileRef"] = json!({"name": profile, "namespace": FLEET});
    }
    json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": name, "namespace": PLACE}, "spec": spec})
}

fn fleet(stages: &Value) -> Value {
    json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod", "namespace": PLACE}, "spec": {
        "placement": {"clusterSelector": {"matchLabels": {"env": "prod"}}, "namespaces": [FLEET]},
        "eventing": {"spec": {"version": "1.1.0"}},
        "rollout": {"stages": stages},
    }})
}

#[test]
fn views_follow_the_hub() {
    run(async {
        let scene = Scene::start().await?;
        let page = Page::start(&scene.hub.kubeconfig(), &[]).await?;
        let browser = Browser::start("light").await?;

        // An empty hub says what to do. The token is valid once.
        browser.open(&page.url).await?;
        browser.shows("Nothing is installed yet").await?;
        browser.accessible("empty hub").await?;
        let (other, address) = (Browser::start("light").await?, page.url.clone());
        other.open(&address).await?;
        other.shows("This URL was used already").await?;
        drop(other);

        // A resource appears, and turns Ready.
        let started = Instant::now();
        scene.register("a").await?;
        scene.apply(&serving("one", Some("a"))).await?;
        browser.shows("1 Ready").await?;
        browser.hides("Nothing is installed yet").await?;
        println!("a resource turned Ready on the page after {:.1} s", started.elapsed().as_secs_f64());

        // The header says which hub this is.
        browser.shows(&scene.hub.url()).await?;

        // The cluster: connection, repaired drift, and conditions, which stay open when it is drawn
        // again.
        browser.run("location.hash = '#/cluster/fleet-system/a'").await?;
        browser.shows("6/6 conditions are fine").await?;
        browser.click("6/6 conditions").await?;
        browser.shows("DeploymentsAvailable").await?;
        browser.shows("connected for").await?;
        scene.spoke.kubectl(&["scale", "deployment/controller", "--replicas=4", "-n", "knative-serving"], "").await?;
        browser.shows("field spec.replicas was changed by kubectl").await?;
        browser.shows("DeploymentsAvailable").await?;
        browser.click("Show the objects of KnativeServing").await?;
        browser.shows("This needs a context for https://").await?;
        browser.accessible("cluster").await?;
        browser.picture("cluster-ready", false).await?;

        // The resource: spec, rendered objects, events.
        browser.run("location.hash = '#/resource/KnativeServing/platform/one'").await?;
        browser.shows("ingress-class: kourier.ingress.networking.knative.dev").await?;
        browser.click("Show what it renders to").await?;
        browser.shows("Deployment knative-serving/controller").await?;
        browser.accessible("resource").await?;
        browser.picture("resource", false).await?;

        // A failure is reported, with the remedy.
        let broken = product::access(&scene.spoke, "nowhere");
        product::profile(&scene.hub, "b", &broken).await?;
        scene.apply(&serving("two", Some("b"))).await?;
        browser.run("location.hash = '#/'").await?;
        browser.shows("1 cluster of 2 needs attention").await?;
        browser.shows("What to do").await?;

        // A fleet waits for an approval.
        let stages =
            json!([{"name": "canary", "clusterSelector": {"matchLabels": {"env": "prod"}}, "approval": "Required"}]);
        scene.apply(&fleet(&stages)).await?;
        browser.shows("AwaitingApproval").await?;
        browser.shows("knative-operator fleet approve").await?;
        browser.accessible("fleet").await?;

        // The keyboard reaches the cells, and moves between them.
        browser.run("document.querySelector('.cell[tabindex=\"0\"]').focus()").await?;
        browser
            .run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true}))")
            .await?;
        let focused = browser.run("return document.activeElement.getAttribute('aria-label')").await?;
        assert!(focused.as_str().is_some_and(|label| label.starts_with("fleet-system/")), "{focused}");

        // Everything changes without a request of the page to elsewhere, or an error.
        let foreign = browser
            .run("return performance.getEntriesByType('resource').map((e) => e.name).filter((name) => !name.startsWith(location.origin))")
            .await?;
        assert_eq!(foreign, json!([]));
        drop(browser);
        let dark = Page::start(&scene.hub.kubeconfig(), &[]).await?;
        let browser = Browser::start("dark").await?;
        browser.open(&dark.url).await?;
        browser.shows("AwaitingApproval").await?;
        browser.accessible("fleet, dark").await?;
        browser.picture("approval-dark", false).await?;
        Ok(())
    });
}

#[test]
fn lost_api_server_and_missing_permissions_are_explained() {
    run(async {
        let mut scene = Scene::start().await?;
        scene.register("a").await?;
        scene.apply(&serving("one", Some("a"))).await?;
        scene
            .hub
            .kubectl(&["wait", "knativeserving/one", "-n", PLACE, "--for=condition=Ready", "--timeout=120s"], "")
            .await?;

        // With a context for the spoke, the page compares.
        let page = Page::start(&scene.both()?, &["--kubernetes-min-version", "v1.25.0"]).await?;
        let browser = Browser::start("light").await?;
        browser.open(&page.url).await?;
        browser.shows("1 Ready").await?;
        browser.run("location.hash = '#/resource/KnativeServing/platform/one'").await?;
        browser.shows("Compare with the cluster").await?;
        browser.click("Compare with the cluster").await?;
        browser.shows("0 to create, 0 to change, 0 to delete").await?;
        browser.run("location.hash = '#/cluster/fleet-system/a'").await?;
        browser.shows("Show the objects").await?;
        browser.click("Show the objects").await?;
        browser.shows("Deployment: ").await?;

        // A reader sees the resources, and what is forbidden.
        let reader = Page::start(&scene.reader().await?, &["-n", PLACE]).await?;
        browser.open(&reader.url).await?;
        browser.shows("1 Ready").await?;
        browser.shows("Cannot read clusterprofiles").await?;
        browser.accessible("reader").await?;

        // The API server goes away, and returns.
        let lost = Page::start(&scene.hub.kubeconfig(), &[]).await?;
        browser.open(&lost.url).await?;
        browser.shows("1 Ready").await?;
        scene.hub.stop_apiserver();
        let since = Instant::now();
        browser.shows("Reconnecting since").await?;
        println!("a lost API server is on the page after {:.1} s", since.elapsed().as_secs_f64());
        browser.picture("reconnecting", false).await?;
        scene.hub.start_apiserver().await?;
        let since = Instant::now();
        browser.hides("Reconnecting since").await?;
        println!("the page is connected again after {:.1} s", since.elapsed().as_secs_f64());
        scene.apply(&serving("late", None)).await?;
        browser.shows("2 clusters").await?;
        tokio::time::timeout(Duration::from_secs(60), browser.shows("2 Ready")).await??;
        Ok(())
    });
}
