//! Broken and hostile servers and plugins: each has its reason, nothing crashes, memory stays
//! bounded, and no credential is published, not even at log level trace.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::https::{Answer, ReceivedRequest, Server};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, http, measure, releases, wait};
use serde_json::{Value, json};

use crate::support::{
    apply, delete, has_condition, logged, namespace, nothing_to_install, provider, resource, run, script,
};

/// The token of every plugin here, which must not be published.
const TOKEN: &str = "canary-5b1e9c77-token";
/// A token in the form of API servers.
const JWT: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJlLWNhbmFyeQ";
/// Plugins.
const PLUGINS: [&str; 4] = ["gives", "floods", "holds", "tells"];
/// Duration of a sleep that plugins leave behind, by which it is found.
const SLEEPS: &str = "31536077";
/// Time limit until no process of a plugin runs: the operator kills one after 10 s, and starts it
/// again after a pause of seconds. One that is left behind sleeps for a year.
const LEFT: Duration = wait::LIMIT;
/// A log line that a spoke tries to write.
const FORGED: &str = r#"{"level":"INFO","message":"forged entry"}"#;
/// Maximum growth of memory in KiB.
const GROWTH: u64 = 64 << 10;

fn asking(name: &str) -> Value {
    resource(Component::Eventing, "hostile", name, Some(name), nothing_to_install())
}

fn processes_with(marker: &str) -> usize {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(|p| std::fs::read_to_string(p.path().join("cmdline")).is_ok_and(|line| line.contains(marker))).count()
}

/// Servers that behave badly, with the reason and a part of the message of each.
fn servers(
    authority: &Authority,
    elsewhere: String,
) -> Result<Vec<(&'static str, Server, &'static str, &'static str)>> {
    let local = [Ipv4Addr::LOCALHOST.into()];
    let html = |status: &'static str| {
        move |_: &ReceivedRequest, _| {
            Answer::With(status, vec!["Content-Type: text/html".into()], b"<html>sign in</html>".repeat(100_000))
        }
    };
    let repeats = |asked: &ReceivedRequest, _| {
        let message = asked.headers.join("; ");
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": "Forbidden", "code": 403});
        Answer::With("403 Forbidden", vec!["Content-Type: application/json".into()], status.to_string().into_bytes())
    };
    let redirects = move |_: &ReceivedRequest, _| {
        let elsewhere = vec![format!("Location: {}", elsewhere)];
        Answer::With("302 Found", elsewhere, Vec::new())
    };
    let forges = |_: &ReceivedRequest, _| {
        let message = format!("no\n{FORGED}\r\n{FORGED}\u{1b}[2J");
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": "Forbidden", "code": 403});
        Answer::With("403 Forbidden", vec!["Content-Type: application/json".into()], status.to_string().into_bytes())
    };
    // Its objects take hundreds of times as much memory as their text.
    let objects = |_: &ReceivedRequest, _| {
        let text = format!(r#"{{"items":[{}{{}}]}}"#, "{},".repeat(1 << 19));
        Answer::With("200 OK", vec!["Content-Type: application/json".into()], text.into_bytes())
    };
    let servers = vec![
        (
            "expired",
            Server::start_with(&authority.issue_in(-3, &local)?, |_, _| Answer::Silence)?,
            "RemoteClusterUnreachable",
            "certificate expired",
        ),
        (
            "early",
            Server::start_with(&authority.issue_in(3, &local)?, |_, _| Answer::Silence)?,
            "RemoteClusterUnreachable",
            "certificate not valid yet",
        ),
        (
            "stranger",
            Server::start(&Authority::new("stranger")?, |_, _| Answer::Silence)?,
            "RemoteClusterUnreachable",
            "invalid peer certificate",
        ),
        (
            "html",
            Server::start(authority, html("200 OK"))?,
            "RemoteClusterUnreachable",
            "does not answer like a Kubernetes API server",
        ),
        (
            "broken",
            Server::start(authority, html("503 Service Unavailable"))?,
            "RemoteClusterUnreachable",
            "is unreachable",
        ),
        (
            "cut",
            Server::start(authority, |_, _| Answer::Cut(b"{\"major\":".to_vec()))?,
            "RemoteClusterUnreachable",
            "is unreachable",
        ),
        ("objects", Server::start(authority, objects)?, "RemoteClusterUnreachable", "bytes of memory"),
        (
            "endless",
            Server::start(authority, |_, _| Answer::Endless)?,
            "RemoteClusterUnreachable",
            "is longer than 4194304 bytes",
        ),
        (
            "silent",
            Server::start(authority, |_, _| Answer::Silence)?,
            "RemoteClusterUnreachable",
            "did not answer within",
        ),
        (
            "redirects",
            Server::start(authority, redirects)?,
            "RemoteClusterUnreachable",
            "does not answer like a Kubernetes API server",
        ),
        ("forges", Server::start(authority, forges)?, "RemoteClusterUnauthorized", "refused the credential"),
        ("repeats", Server::start(authority, repeats)?, "RemoteClusterUnauthorized", "[hidden]"),
    ];
    Ok(servers)
}

#[test]
fn hostile_spokes_and_plugins_are_reported_and_bounded() {
    run(async {
        let (hub, releases, plugins) = (Cluster::hub("hostile").await?, releases::small(), tempfile::tempdir()?);
        let providers: Vec<Value> = PLUGINS.iter().map(|name| provider(name)).collect();
        let mut values = product::values(&providers);
        values["knative_operator"]["knative_operator"]["logLevel"] = json!("trace");
        let product = Product::create(&hub, &releases, values, plugins.path()).await?;
        namespace(&hub, "hostile").await?;
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": TOKEN}});
        for (name, text) in [
            ("gives", format!("echo '{credential}'")),
            ("floods", "head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2".to_owned()),
            ("holds", format!("echo '{credential}'\nsleep {SLEEPS} &\nexit 0")),
            (
                "tells",
                format!(
                    "head -c 50000000 /dev/zero >&2; echo >&2; echo 'refused: Bearer {TOKEN} and {JWT}' >&2; exit 3"
                ),
            ),
        ] {
            script(&plugins.path().join(name), &format!("#!/bin/sh\n{text}\n"))?;
        }

        let authority = Authority::new("hostile")?;
        // A client that follows a redirect sends the credential there.
        let elsewhere = Server::start(&authority, |_, _| Answer::Silence)?;
        let servers = servers(&authority, elsewhere.url("/version"))?;
        let at = |provider: &str, server: &str| json!([{"name": provider, "cluster": {"server": server, "certificate-authority-data": BASE64_STANDARD.encode(authority.pem())}}]);
        let mut cases: Vec<(&str, Value, &str, &str)> = servers
            .iter()
            .map(|(name, server, reason, part)| (*name, at("gives", &server.url("")), *reason, *part))
            .collect();
        let plain = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let plainly = plain.local_addr()?;
        std::thread::spawn(move || {
            plain
                .incoming()
                .flatten()
                .for_each(|mut s| drop(std::io::Write::write_all(&mut s, b"HTTP/1.1 400 Bad Request\r\n\r\n")));
        });
        let mut many = at("gives", &servers[3].1.url(""));
        many[0]["cluster"]["extensions"] =
            (0..2000).map(|n| json!({"name": format!("e.example/{n}"), "extension": {"k": "v".repeat(100)}})).collect();
        cases.extend([
            ("http", at("gives", "http://127.0.0.1:8080"), "RemoteClientCreationFailed", "is not https"),
            ("plain", at("gives", &format!("https://{plainly}")), "RemoteClusterUnreachable", "is unreachable"),
            (
                "login",
                at("gives", &format!("https://u:{TOKEN}@127.0.0.1")),
                "RemoteClientCreationFailed",
                "contains a login",
            ),
            ("floods", at("floods", &servers[3].1.url("")), "AccessProviderFailed", "printed more than"),
            (
                "holds",
                at("holds", &servers[3].1.url("")),
                "AccessProviderFailed",
                "did not answer within 10s and was killed",
            ),
            (
                "tells",
                at("tells", &servers[3].1.url("")),
                "AccessProviderFailed",
                "ended with status 3: refused: Bearer [hidden] and [hidden]",
            ),
            ("many", many, "RemoteClusterUnreachable", "does not answer like a Kubernetes API server"),
            ("unicode", at("größe-😀", "https://127.0.0.1"), "ClusterProfileUnavailable", "größe-😀"),
        ]);
        let before = measure::resident(product.operator.process.pid()?)?;
        for (name, access, ..) in &cases {
            product::profile(&hub, name, access).await?;
            apply(&hub, &asking(name)).await?;
        }
        for (name, _, reason, part) in &cases {
            has_condition(&hub, &asking(name), "TargetClusterResolved", reason, part)
                .await
                .map_err(|e| format!("{name}: {e}"))?;
        }
        assert!(elsewhere.requests().is_empty(), "the operator followed a redirect");
        logged(&product.operator.process, "forged entry").await?;
        let log = product.operator.process.log();
        assert!(!log.lines().any(|line| line.trim_start().starts_with(FORGED)), "a spoke wrote a line of the log");
        // Polled: nothing reports the end of a process of others. The plugin may be running again.
        let deadline = Instant::now() + LEFT;
        while processes_with(SLEEPS) > 0 {
            assert!(Instant::now() < deadline, "a plugin left a process behind");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        product.check_operator()?;
        let grown = measure::resident(product.operator.process.pid()?)?.saturating_sub(before);
        assert!(grown < GROWTH, "the operator's memory has grown by {grown} KiB");

        // Manifests from addresses that only the operator can reach.
        for url in ["https://169.254.169.254/latest/meta-data", "https://localhost:8443/a.yaml", "https://[::1]/a"] {
            let spec = json!({"version": "1.0.0", "manifests": [{"URL": url}]});
            let inside = resource(Component::Serving, "hostile", "inside", None, spec);
            apply(&hub, &inside).await?;
            let part = format!("spec.manifests[0].URL: {url}: ");
            has_condition(&hub, &inside, "InstallSucceeded", "Error", &part).await?;
            has_condition(&hub, &inside, "InstallSucceeded", "Error", "is not a public address").await?;
            delete(&hub, &inside).await?;
        }

        // A name that is too long for the anchor is refused before anything is stored.
        let long = "x".repeat(240);
        let refused = apply(&hub, &asking(&long)).await.unwrap_err().to_string();
        assert!(
            refused.contains("characters too long: a ConfigMap on the spoke is named after it")
                && refused.contains("shorten it by"),
            "{refused}"
        );

        for (name, ..) in &cases {
            delete(&hub, &asking(name)).await?;
        }
        check_no_credential(&hub, &product).await
    });
}

/// Checks that no credential is published.
async fn check_no_credential(hub: &Cluster, product: &Product) -> Result<()> {
    let (_, metrics) = http::get(product.metrics(), "/metrics").await?;
    let stored =
        hub.kubectl(&["get", "knativeserving,knativeeventing,events,configmaps", "-A", "-o", "yaml"], "").await?;
    let log = product.operator.process.log();
    assert!(log.contains("\"TRACE\""), "the log is not at level trace");
    let encoded = BASE64_STANDARD.encode(TOKEN);
    for (what, text) in [("the log", &log), ("the stored object", &stored), ("the metrics", &metrics)] {
        for secret in [TOKEN, JWT, &encoded] {
            if let Some(line) = text.lines().find(|line| line.contains(secret)) {
                return Err(format!("a credential is in {what}: {line}").into());
            }
        }
    }
    Ok(())
}
