//! The examples of the library `operator/cluster-access`, with a real hub and two spokes.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::process::Process;
use knative_operator_tests::product::{self, FLEET};
use knative_operator_tests::{tools, wait};
use kube::Api;
use serde_json::{Value, json};

use crate::support::{apply, run};

/// The grace period of an example.
const GRACE: Duration = Duration::from_secs(5);

#[test]
fn examples_reach_each_cluster() {
    run(async {
        let clusters =
            tokio::try_join!(Cluster::hub("library"), Cluster::spoke("library-1"), Cluster::spoke("library-2"))?;
        let (hub, spokes) = (&clusters.0, [("one", &clusters.1), ("two", &clusters.2)]);
        let definition = std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?;
        for definition in serde_saphyr::from_multiple::<Value>(&definition)? {
            hub.put(&definition).await?;
        }
        wait::established(hub.client()).await?;
        hub.namespace(FLEET).await?;
        for (name, spoke) in spokes {
            let account = json!({"name": "library", "namespace": "kube-system"});
            let subject = json!({"kind": "ServiceAccount", "name": "library", "namespace": "kube-system"});
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
            spoke.put(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})).await?;
            let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "library"}, "roleRef": role, "subjects": [subject]});
            spoke.put(&binding).await?;
            // Secrets have the annotations of the examples.
            let secret = format!("library-{name}");
            let token = spoke.token("kube-system", "library", 24 * 3600).await?;
            let bound = json!({"example.com/cluster-profile": format!("{FLEET}/{name}")});
            let meta = json!({"name": secret, "namespace": "default", "annotations": bound});
            apply(
                hub,
                &json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": token}}),
            )
            .await?;
            let mut access = product::access(spoke, &secret);
            access[0]["name"] = json!("examples");
            product::profile_in(hub, FLEET, name, &access).await?;
            let containers = json!([{"name": "a", "image": "registry.example/a"}]);
            let meta = json!({"name": format!("on-{name}"), "namespace": "kube-system"});
            let spec = json!({"containers": containers, "serviceAccountName": "library"});
            apply(spoke, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})).await?;
        }
        // Nobody gets the credential of a Secret that doesn't name the profile.
        let stolen = product::access(spokes[0].1, "library-one");
        product::profile_in(hub, FLEET, "stranger", &json!([{"name": "examples", "cluster": stolen[0]["cluster"]}]))
            .await?;

        let file = hub.dir().join("provider-file.json");
        std::fs::write(&file, json!({"providers": [{"name": "examples", "builtin": "secretreader"}]}).to_string())?;
        let start = |name: &str| {
            let environment = [("KUBECONFIG".to_owned(), hub.kubeconfig().display().to_string())];
            let arguments = [file.display().to_string()];
            Process::start(name, hub.dir(), &tools::example(name)?, &arguments, &environment, GRACE)
        };
        let mut list = start("list_pods")?;
        let (code, log) = (list.wait()?, list.log());
        eprintln!("{log}");
        let expected = [
            "one: Pod kube-system/on-one",
            "two: Pod kube-system/on-two",
            "stranger: built-in provider secretreader: ",
        ];
        for line in expected {
            assert!(code == 0 && log.contains(&format!("{FLEET}/{line}")), "{code}: {log}");
        }
        let foreign = ["one: Pod kube-system/on-two", "two: Pod kube-system/on-one", "stranger: Pod "];
        assert!(foreign.iter().all(|line| !log.contains(&format!("{FLEET}/{line}"))), "{log}");

        let controller = start("controller")?;
        for (name, spoke) in spokes {
            let expected = format!("{FLEET}/{name}");
            let is_written = |map: Option<&ConfigMap>| {
                let profile = map.and_then(|map| map.data.as_ref()?.get("profile"));
                profile.is_some_and(|profile| *profile == expected)
            };
            let maps = Api::<ConfigMap>::namespaced(spoke.client(), "default");
            let written = wait::until(&maps, "greeting", wait::LIMIT, "written", is_written).await;
            written.map_err(|error| format!("{error}\n{}", controller.log()))?;
        }
        Ok(())
    });
}
