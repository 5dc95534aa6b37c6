//! Ways to connect to a spoke: sources of credentials, and kinds of connections.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Event;
use knative_operator_shared::api::Component;
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::product::{self, NAMESPACE};
use knative_operator_tests::proxies::{LOGIN, Protocol, Proxy};
use knative_operator_tests::wait;
use kube::Api;
use serde_json::{Value, json};

use crate::support::{
    apply, condition, delete, fleet, has_condition, namespace, nothing_to_install, provider, resource, run, script,
    status,
};

const RESOLVED: Duration = wait::LIMIT;

/// The providers for these ways.
pub fn providers() -> Vec<Value> {
    let mut beta = provider("beta");
    beta["execConfig"]["apiVersion"] = json!("client.authentication.k8s.io/v1beta1");
    let mut configured = provider("configured");
    configured["execConfig"]["args"] = json!(["--own"]);
    configured["execConfig"]["env"] = json!([{"name": "OWN", "value": "own"}]);
    configured["profileSourcedEnvVarsPolicy"] = json!("AppendIfNotExists");
    let kubeconfig = json!({"name": "kubeconfig-secretreader", "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/access-plugins/official/bin/kubeconfig-secretreader-plugin", "provideClusterInfo": true}});
    vec![beta, configured, kubeconfig, provider("certificate"), json!({"name": "builtin", "builtin": "secretreader"})]
}

/// A resource for `profile` with a version that the bundle lacks: its cluster is resolved, nothing
/// is installed.
fn asking(name: &str) -> Value {
    resource(Component::Serving, "ways", name, Some(name), nothing_to_install())
}

fn credential(version: &str, status: &Value) -> String {
    json!({"apiVersion": format!("client.authentication.k8s.io/{version}"), "kind": "ExecCredential", "status": status})
        .to_string()
}

#[test]
fn each_way_connects_to_spoke() {
    run(async {
        let fleet = fleet().await?;
        let (hub, spoke) = (&fleet.hub, &fleet.spokes[1]);
        namespace(hub, "ways").await?;
        let token = spoke.token("kube-system", "knative-hub", 24 * 3600).await?;
        let read = |name: &str| std::fs::read_to_string(spoke.dir().join(name));
        let (certificate, key) = (read("admin.crt")?, read("admin.key")?);

        // Plugins: the older version; a short-lived certificate; one that checks its input.
        let print_script = |name: &str, text: &str| {
            script(&fleet.plugins.join(name), &format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n"))
        };
        print_script("beta", &credential("v1beta1", &json!({"token": token})))?;
        let renewed = "date -u -d '+6 seconds' +%Y-%m-%dT%H:%M:%SZ";
        let identity = credential(
            "v1",
            &json!({"clientCertificateData": certificate, "clientKeyData": key, "expirationTimestamp": "END"}),
        );
        std::fs::write(fleet.plugins.join("identity.json"), identity)?;
        let shown = fleet.plugins.join("identity.json");
        script(
            &fleet.plugins.join("certificate"),
            &format!("#!/bin/sh\nsed \"s/\\\"END\\\"/\\\"$({renewed})\\\"/\" {}\n", shown.display()),
        )?;
        let checks = r#"[ "$*" = "--own" ] || { echo "args: $*" >&2; exit 1; }
[ "$OWN $THEIRS" = "own theirs" ] || { echo "env: $OWN $THEIRS" >&2; exit 1; }
case "$KUBERNETES_EXEC_INFO" in *'"config":{"region":"eu"}'*) ;; *) echo "info: no config" >&2; exit 1;; esac"#;
        let credential = credential("v1", &json!({"token": token}));
        script(&fleet.plugins.join("configured"), &format!("#!/bin/sh\n{checks}\ncat <<'END'\n{credential}\nEND\n"))?;

        // Secrets: a kubeconfig for the official plugin, a token for the built-in provider, which
        // asks to which profiles it is bound.
        let config =
            kubeconfig("spoke", &spoke.pod_endpoint().0, &spoke.pod_endpoint().1, "default", &User::Token(&token));
        for (name, data) in [("ways-kubeconfig", json!({"config": config})), ("ways-token", json!({"token": token}))] {
            let bound =
                json!({"operator.knative.dev/cluster-profile": "fleet-system/kubeconfig, fleet-system/builtin"});
            let meta = json!({"name": name, "namespace": NAMESPACE, "annotations": bound});
            apply(hub, &json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data})).await?;
        }

        // Proxies.
        let authority = Authority::new("proxy")?;
        let issued = authority.issue("proxy", None, &[std::net::Ipv4Addr::LOCALHOST.into()], &["localhost"])?;
        let proxies = (
            Proxy::start(Protocol::Http).await?,
            Proxy::start(Protocol::Https(match Protocol::https(&issued)? {
                Protocol::Https(acceptor) => acceptor,
                _ => unreachable!("it speaks https"),
            }))
            .await?,
            Proxy::start(Protocol::Socks5).await?,
        );
        let both = format!("{}{}", spoke.pod_endpoint().1, authority.pem());

        let base = |name: &str, change: &dyn Fn(&mut Value)| {
            let mut access = product::access(spoke, "spoke-1");
            access[0]["name"] = json!(name);
            change(&mut access[0]["cluster"]);
            access
        };
        let extension = |cluster: &mut Value, value: Value| cluster["extensions"][0]["extension"] = value;
        let cases: Vec<(&str, Value)> = vec![
            ("beta", base("beta", &|_| {})),
            ("certificate", base("certificate", &|_| {})),
            (
                "kubeconfig",
                base("kubeconfig-secretreader", &|c| extension(c, json!({"name": "ways-kubeconfig", "key": "config"}))),
            ),
            ("builtin", base("builtin", &|c| extension(c, json!({"clusterName": "ways-token"})))),
            (
                "configured",
                base("configured", &|c| {
                    extension(c, json!({"region": "eu"}));
                    // (additional-args is a list, which the official CRD doesn't admit.)
                    let name = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";
                    let more = json!({"name": name, "extension": {"OWN": "no", "THEIRS": "theirs"}});
                    c["extensions"].as_array_mut().unwrap().push(more);
                }),
            ),
            (
                "proxy-http",
                base("secretreader", &|c| c["proxy-url"] = json!(format!("http://{LOGIN}@{}", proxies.0.address))),
            ),
            (
                "proxy-https",
                base("secretreader", &|c| {
                    c["proxy-url"] = json!(format!("https://{LOGIN}@{}", proxies.1.address));
                    // Several authorities in one bundle: those of the API server and of the proxy.
                    c["certificate-authority-data"] = json!(BASE64_STANDARD.encode(&both));
                }),
            ),
            (
                "proxy-socks",
                base("secretreader", &|c| c["proxy-url"] = json!(format!("socks5://{}", proxies.2.address))),
            ),
            (
                "chain",
                base("secretreader", &|c| {
                    // The certificate of the server, and its authority.
                    let chain = format!("{}{}", read("server.crt").unwrap(), spoke.authority());
                    c["certificate-authority-data"] = json!(BASE64_STANDARD.encode(chain));
                }),
            ),
            ("server-name", base("secretreader", &|c| c["tls-server-name"] = json!("kubernetes.default.svc"))),
            (
                "insecure",
                base("secretreader", &|c| {
                    c.as_object_mut().unwrap().remove("certificate-authority-data");
                    c["insecure-skip-tls-verify"] = json!(true);
                }),
            ),
        ];
        for (name, access) in &cases {
            product::profile(hub, name, access).await?;
            apply(hub, &asking(name)).await?;
        }
        for (name, _) in &cases {
            let resolved = |s: &knative_operator_shared::api::KnativeStatus| {
                condition(s, "TargetClusterResolved").is_some_and(|c| c.status == "True")
            };
            status(hub, &asking(name), RESOLVED, "resolved", resolved).await.map_err(|e| format!("{name}: {e}"))?;
        }
        assert!(
            proxies.0.passed() > 0 && proxies.1.passed() > 0 && proxies.2.passed() > 0,
            "a connection bypassed the proxies"
        );
        let insecure = |events: &[Event]| {
            let text = "insecure-skip-tls-verify is set in ClusterProfile fleet-system/insecure";
            events.iter().any(|event| event.message.as_deref().is_some_and(|message| message.contains(text)))
        };
        wait::until_all(&Api::<Event>::namespaced(hub.client(), "ways"), "", RESOLVED, "InsecureCluster", insecure)
            .await?;

        // A proxy that refuses is reported, without its login.
        let stranger =
            base("secretreader", &|c| c["proxy-url"] = json!(format!("http://hub:wr0ng-s3cret@{}", proxies.0.address)));
        product::profile(hub, "stranger", &stranger).await?;
        apply(hub, &asking("stranger")).await?;
        has_condition(
            hub,
            &asking("stranger"),
            "TargetClusterResolved",
            "RemoteClusterUnreachable",
            "proxy authorization required",
        )
        .await?;
        let output = hub.kubectl(&["get", "knativeserving,events", "-n", "ways", "-o", "yaml"], "").await?;
        let log = fleet.product.operator.process.log();
        for secret in ["s3cret", token.as_str()] {
            assert!(!output.contains(secret) && !log.contains(secret), "a secret is published");
        }
        for (name, _) in &cases {
            delete(hub, &asking(name)).await?;
        }
        delete(hub, &asking("stranger")).await
    });
}
