//! Who may target which cluster, and who may set which field: users, actions and modes.

use futures::future::join_all;
use knative_operator_shared::label::FLEET_REVISION;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::cluster::apply::Terms;
use knative_operator_tests::product::{self, FLEET, NAMESPACE, Product};
use knative_operator_tests::{Result, http, releases, tools};
use serde_json::{Value, json};

use crate::audit;
use crate::document::{Shell, document, nothing_installed};
use crate::support::{apply, namespace, nothing_to_install, run};

/// Namespace of the users' resources.
const TENANT: &str = "tenant";

/// A RoleBinding in `namespace` of ClusterRole `role`, with the same name. `@name` is a group.
pub fn binding(role: &str, namespace: &str, users: &[&str]) -> Value {
    let subjects: Vec<Value> = users
        .iter()
        .map(|user| match user.strip_prefix('@') {
            Some(group) => json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}),
            None => json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}),
        })
        .collect();
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": subjects})
}

/// Permissions: `ed` edits resources; `ann` may use ClusterProfile a, too; the group `sre` may use
/// all of the namespace; `cora` may customize, and install on the hub itself; `pat` may approve.
async fn grant(hub: &Cluster) -> Result<()> {
    let one = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "use-a", "namespace": FLEET},
        "rules": [{"apiGroups": ["multicluster.x-k8s.io"], "resources": ["clusterprofiles"], "resourceNames": ["a"], "verbs": ["use"]}]});
    let mut use_a = binding("use-a", FLEET, &["ann"]);
    use_a["roleRef"]["kind"] = json!("Role");
    let local = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "local"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "knative-operator-local-user"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "cora"}]});
    let items = [
        local,
        binding("knative-operator-editor", TENANT, &["ed", "ann", "cora", "@sre", "pat"]),
        one,
        use_a,
        binding("knative-operator-user", FLEET, &["@sre"]),
        binding("knative-operator-customizer", TENANT, &["cora"]),
        binding("knative-operator-approver", TENANT, &["pat"]),
    ];
    apply(hub, &json!({"apiVersion": "v1", "kind": "List", "items": items})).await?;
    // The last ones of their kinds.
    let approve = json!({"group": "operator.knative.dev", "resource": "knativefleetapprovals", "verb": "create", "namespace": TENANT});
    hub.until_permitted("pat", &approve, true).await?;
    let use_a = json!({"group": "multicluster.x-k8s.io", "resource": "clusterprofiles", "name": "a", "verb": "use", "namespace": FLEET});
    hub.until_permitted("ann", &use_a, true).await
}

fn serving(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": name, "namespace": TENANT}, "spec": spec})
}

fn targeting(profile: &str) -> Value {
    serving("new", &json!({"clusterProfileRef": {"name": profile, "namespace": FLEET}}))
}

fn fleet(mut placement: Value, spec: &Value) -> Value {
    if placement.get("decision").is_none() {
        placement["namespaces"] = placement.get("namespaces").cloned().unwrap_or_else(|| json!([FLEET]));
    }
    json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "new", "namespace": TENANT},
        "spec": {"placement": placement, "serving": {"spec": spec}}})
}

fn env() -> Value {
    json!({"workloads": [{"name": "controller", "env": [{"container": "controller", "envVars": [{"name": "A", "value": "b"}]}]}]})
}

/// A fleet with an approval, which an administrator stored, with `change` of its spec. It has no
/// cluster.
fn gated(change: Option<(&str, Value)>) -> Value {
    let mut gated = fleet(json!({"clusterSelector": {"matchLabels": {"name": "none"}}}), &json!({}));
    gated["metadata"]["name"] = json!("gated");
    gated["spec"]["rollout"] = json!({"stages": [{"name": "all", "approval": "Required"}]});
    if let Some((field, value)) = change {
        gated["spec"][field] = value;
    }
    gated
}

/// Actions with their names. `stored` has patches, which an administrator stored.
fn actions() -> Vec<(&'static str, Value)> {
    let patches = json!([{"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "controller"},
        "patch": {"type": "merge", "content": "metadata: {labels: {a: b}}"}}]);
    let local = |spec: Value| serving("new", &spec);
    let stored = |mut spec: Value| {
        for (field, value) in nothing_to_install().as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec["clusterProfileRef"] = json!({"name": "d", "namespace": FLEET});
        serving("stored", &spec)
    };
    let mut overridden = fleet(json!({"clusterSelector": {"matchLabels": {"name": "a"}}}), &json!({}));
    overridden["spec"]["overrides"] = json!([{"clusterSelector": {}, "serving": {"spec": env()}}]);
    vec![
        ("local cluster", local(json!({}))),
        ("ClusterProfile a", targeting("a")),
        ("ClusterProfile b", targeting("b")),
        ("patches", local(json!({"patches": patches}))),
        ("additionalManifests", local(json!({"additionalManifests": [{"URL": "https://example.com/more.yaml"}]}))),
        (
            "manifests by URL",
            local(json!({"version": "1.22.1", "manifests": [{"URL": "https://example.com/v${VERSION}.yaml"}]})),
        ),
        ("registry", local(json!({"registry": {"default": "registry.example/${NAME}"}}))),
        ("hostNetwork", local(json!({"workloads": [{"name": "controller", "hostNetwork": true}]}))),
        ("annotations", local(json!({"workloads": [{"name": "controller", "annotations": {"a": "b"}}]}))),
        ("env", local(env())),
        (
            "namespace labels",
            local(json!({"namespace": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}})),
        ),
        (
            "image in a ConfigMap",
            local(json!({"config": {"deployment": {"queue-sidecar-image": "registry.example/queue"}}})),
        ),
        (
            "what is free",
            // Stored already: a new one on the hub itself needs a permission.
            stored(
                json!({"patches": patches, "high-availability": {"replicas": 2}, "ingress": {"kourier": {"enabled": true}},
                "workloads": [{"name": "controller", "resources": [{"container": "controller", "requests": {"cpu": "1"}}]}],
                "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}, "autoscaler": {"max-scale": "7"}}}),
            ),
        ),
        ("stored: replicas", stored(json!({"patches": patches, "high-availability": {"replicas": 2}}))),
        ("stored: patches", stored(json!({"high-availability": {"replicas": 1}}))),
        ("stored: revision", {
            let mut stored = stored(json!({"patches": patches, "high-availability": {"replicas": 1}}));
            stored["metadata"]["annotations"] = json!({FLEET_REVISION: "gated-1"});
            stored
        }),
        ("fleet: a", fleet(json!({"clusterSelector": {"matchLabels": {"name": "a"}}}), &json!({}))),
        ("fleet: all", fleet(json!({"clusterSelector": {}}), &json!({}))),
        ("fleet: none yet", fleet(json!({"clusterSelector": {"matchLabels": {"name": "c"}}}), &json!({}))),
        ("fleet: namespace *", fleet(json!({"clusterSelector": {}, "namespaces": ["*"]}), &json!({}))),
        ("fleet: decision", fleet(json!({"decision": {"key": "d"}}), &json!({}))),
        (
            "fleet: patches",
            fleet(json!({"clusterSelector": {"matchLabels": {"name": "a"}}}), &json!({"patches": patches})),
        ),
        ("fleet: override", overridden),
        ("approval: template", gated(Some(("serving", json!({"spec": {"high-availability": {"replicas": 2}}}))))),
        ("approval: stages", gated(Some(("rollout", json!({"stages": [{"name": "all"}]}))))),
        ("approval: placement", gated(Some(("placement", json!({"clusterSelector": {}, "namespaces": [FLEET]}))))),
    ]
}

/// Name and groups.
type User = (&'static str, &'static [&'static str]);

/// Who asks.
const USERS: [User; 6] =
    [("admin", &["system:masters"]), ("ed", &[]), ("ann", &[]), ("cora", &[]), ("sam", &["sre"]), ("pat", &[])];

/// Whether `user` may store `object`, which isn't stored: `yes`, `warned` or `no`, and the output.
async fn answer(hub: &Cluster, user: User, object: &Value) -> (&'static str, String) {
    let (admitted, output) = hub.try_apply(object, Terms { is_dry_run: true, user: Some(user) }).await;
    let is_told = output.contains("is not allowed to");
    let answer = match (admitted, is_told) {
        (true, false) => "yes",
        (true, true) => "warned",
        (false, true) => "no",
        (false, false) => "failed",
    };
    (answer, output)
}

/// `audit` lists what an administrator stored, with those who may write it and lack a permission.
async fn audited(hub: &Cluster) -> Result<()> {
    let (code, text) = audit::audit(hub, &["-n", TENANT]).await?;
    assert_eq!(code, Some(1), "{text}");
    let everyone = "user \"ann\", user \"cora\", user \"ed\", user \"pat\"";
    let stored = format!(
        "KnativeServing {TENANT}/stored\n  spec.clusterProfileRef: use ClusterProfile \"{FLEET}/d\"\n    not permitted to {everyone}\n  spec.manifests, spec.patches: customize knativeservings in namespace \"{TENANT}\"\n    not permitted to group \"sre\", user \"ann\", user \"ed\", user \"pat\""
    );
    assert_eq!(audit::block(&text, &format!("KnativeServing {TENANT}/stored")), stored, "{text}");
    let gated = format!(
        "KnativeFleet {TENANT}/gated\n  spec.placement: use all ClusterProfiles in namespace \"{FLEET}\"\n    not permitted to {everyone}"
    );
    assert_eq!(audit::block(&text, &format!("KnativeFleet {TENANT}/gated")).trim_end(), gated, "{text}");
    for part in [
        "The webhook would refuse 2 of 2 resources.".to_owned(),
        format!("ClusterRole knative-operator-customizer: RoleBinding in namespace \"{TENANT}\"\n"),
        format!("ClusterRole knative-operator-user: RoleBinding in namespace \"{FLEET}\"\n"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    let (code, text) = audit::audit(hub, &["-n", TENANT, "--user", "sam", "--group", "sre"]).await?;
    assert_eq!((code, text.contains("not permitted to user \"sam\"")), (Some(1), true), "{text}");
    assert!(!text.contains("clusterProfileRef") && !text.contains("KnativeFleet"), "{text}");
    let (code, text) = audit::audit(hub, &["-A", "--user", "admin", "--group", "system:masters"]).await?;
    assert_eq!((code, text.contains("2 resources are permitted")), (Some(0), true), "{text}");
    audit::needs_permission_to_list(hub, TENANT).await
}

/// The table of all users and actions.
async fn table(hub: &Cluster, users: &[User]) -> String {
    let row = |cells: &[&str]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:<8}")).collect();
        cells.concat().trim_end().to_owned()
    };
    let names: Vec<&str> = users.iter().map(|(user, _)| *user).collect();
    let mut rows = vec![format!("{:<22}{}", "", row(&names))];
    for (name, object) in actions() {
        let answers = join_all(users.iter().map(|user| answer(hub, *user, &object))).await;
        let cells: Vec<&str> = answers.iter().map(|(answer, _)| *answer).collect();
        rows.push(format!("{name:<22}{}", row(&cells)));
    }
    rows.join("\n")
}

const ENFORCED: &str = "\
                      admin   ed      ann     cora    sam     pat
local cluster         yes     no      no      yes     no      no
ClusterProfile a      yes     no      yes     no      yes     no
ClusterProfile b      yes     no      no      no      yes     no
patches               yes     no      no      yes     no      no
additionalManifests   yes     no      no      yes     no      no
manifests by URL      yes     no      no      yes     no      no
registry              yes     no      no      yes     no      no
hostNetwork           yes     no      no      yes     no      no
annotations           yes     no      no      yes     no      no
env                   yes     no      no      yes     no      no
namespace labels      yes     no      no      yes     no      no
image in a ConfigMap  yes     no      no      yes     no      no
what is free          yes     yes     yes     yes     yes     yes
stored: replicas      yes     yes     yes     yes     yes     yes
stored: patches       yes     no      no      yes     no      no
stored: revision      yes     no      no      no      no      yes
fleet: a              yes     no      no      no      yes     no
fleet: all            yes     no      no      no      yes     no
fleet: none yet       yes     no      no      no      yes     no
fleet: namespace *    yes     no      no      no      no      no
fleet: decision       yes     no      no      no      no      no
fleet: patches        yes     no      no      no      no      no
fleet: override       yes     no      no      no      no      no
approval: template    yes     yes     yes     yes     yes     yes
approval: stages      yes     no      no      no      no      yes
approval: placement   yes     no      no      no      no      no";

#[test]
fn users_need_permission_for_clusters_and_content() {
    run(async {
        let (hub, plugins) = (Cluster::hub("authorization").await?, tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        values["knative_operator"]["operator_webhook"]["authorization"] = json!("enforce");
        let mut product = Product::install(&hub, &releases::best(), values.clone(), plugins.path()).await?;
        for name in ["a", "b", "d"] {
            product::profile(&hub, name, &json!([])).await?;
            hub.object("clusterprofile", FLEET, name).label(&json!({"name": name})).await?;
        }
        namespace(&hub, TENANT).await?;
        let mut stored = actions().into_iter().find(|(name, _)| *name == "stored: replicas").unwrap().1;
        stored["spec"]["high-availability"] = json!({"replicas": 1});
        apply(&hub, &stored).await?;
        apply(&hub, &gated(None)).await?;
        grant(&hub).await?;

        let enforced = table(&hub, &USERS).await;
        println!("enforce:\n{enforced}");
        assert_eq!(enforced.trim(), ENFORCED);
        audited(&hub).await?;
        let (_, message) = answer(&hub, ("ed", &[]), &targeting("a")).await;
        println!("{message}");
        for part in [
            "Error from server (Forbidden)",
            "spec.clusterProfileRef: user \"ed\" is not allowed to use ClusterProfile \"fleet-system/a\"",
            "such as a RoleBinding in namespace \"fleet-system\" for ClusterRole knative-operator-user",
        ] {
            assert!(message.contains(part), "{message}");
        }

        let (_, message) = answer(&hub, ("ed", &[]), &serving("new", &env())).await;
        println!("{message}");
        let expected = format!(
            "spec.workloads[controller].env: user \"ed\" is not allowed to customize knativeservings in namespace \"{TENANT}\""
        );
        assert!(message.contains(&expected), "{message}");

        // Without an answer of the API server, nothing is admitted but what needs no question.
        hub.object("clusterrolebinding", "", "operator-webhook-admission").delete().await?;
        let ask = json!({"group": "authorization.k8s.io", "resource": "subjectaccessreviews", "verb": "create"});
        hub.until_permitted("system:serviceaccount:knative-operator:operator-webhook", &ask, false).await?;
        let (_, message) = answer(&hub, ("zoe", &["system:masters"]), &targeting("a")).await;
        println!("{message}");
        assert!(message.contains("cannot check whether user \"zoe\" is allowed to use"), "{message}");
        let replicas = actions().into_iter().find(|(name, _)| *name == "stored: replicas").unwrap().1;
        assert_eq!(answer(&hub, ("zoe", &["system:masters"]), &replicas).await.0, "yes");

        for (mode, denied) in [("warn", "warned"), ("off", "yes")] {
            values["knative_operator"]["operator_webhook"]["authorization"] = json!(mode);
            let file = hub.dir().join("values.json");
            std::fs::write(&file, values.to_string())?;
            let (chart, file) = (tools::project().join("charts/knative-operator"), file.display().to_string());
            let chart = chart.display().to_string();
            let arguments = ["upgrade", "knative-operator", &chart, "-n", NAMESPACE, "--values", &file];
            hub.helm(&[&arguments[..], &["--wait", "--timeout", "2m"]].concat()).await?;
            product.start_webhook(&hub).await?;
            let found = table(&hub, &USERS[2..3]).await;
            println!("{mode}:\n{found}");
            let column = |row: &str| row.get(38..46).map(|cell| cell.trim().replace("no", denied));
            let expected: Vec<_> = ENFORCED.lines().skip(1).filter_map(column).collect();
            let answers: Vec<_> = found.lines().skip(1).filter_map(|row| row.split_whitespace().last()).collect();
            assert_eq!(answers, expected, "{mode}");
            if mode == "warn" {
                let (_, warning) = answer(&hub, ("ed", &[]), &targeting("b")).await;
                println!("{warning}");
                assert!(
                    warning.contains("once authorization is enforced, the webhook refuses this request"),
                    "{warning}"
                );
            }
        }
        let mut shell = Shell::new(&[("hub", &hub)], &json!({}))?;
        for block in document("docs/operate/security.md")? {
            let printed = shell.run(&block.script, nothing_installed).await?;
            assert!(printed.trim_end().ends_with("yes"), "{printed}");
        }
        let (pod, _) = product.webhook.as_ref().ok_or("no webhook")?;
        let (_, text) = http::get((pod.address, 9090).into(), "/metrics").await?;
        assert!(!text.contains("admission_authorization_checks_total{"), "nobody is asked: {text}");
        Ok(())
    });
}
