//! Manifests by URL, from a server with its own authority, which also misbehaves.

use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use knative_operator_release::{Downloads, HostPolicy};
use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::pki::Authority;
use serde_json::Value;

use super::{command, outcome, serving, small};

const NAMESPACE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: knative-serving}}";

fn map(name: &str, label: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: knative-serving, labels: {{app.kubernetes.io/version: '{label}'}}}}}}\n"
    )
}

fn ok(text: String) -> Answer {
    Answer::With("200 OK", Vec::new(), text.into_bytes())
}

fn status(status: &'static str, headers: &[String]) -> Answer {
    Answer::With(status, headers.to_vec(), Vec::new())
}

/// A server, and the file with its authority.
struct Fixture {
    server: Server,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("downloads").unwrap();
        std::fs::write(directory.path().join("ca.crt"), authority.pem()).unwrap();
        let server = Server::start(&authority, |asked, before| match asked.path.as_str() {
            "/v1.1.0/serving.yaml" => ok(format!("{NAMESPACE}\n{}", map("config-own", "v1.1.9"))),
            "/replacing.yaml?token=query-secret" => ok(map("config-defaults", "1.1.0")),
            "/other-version.yaml" => ok(map("config-own", "1.2.0")),
            "/broken.yaml" => ok("a: 1\nb: [\n".to_owned()),
            "/page" => ok("<html>a page that says nothing</html>".to_owned()),
            "/empty.yaml" => ok("# nothing\n".to_owned()),
            "/later.yaml" if before < 2 => status("503 Service Unavailable", &[]),
            "/later.yaml" => ok(map("config-later", "1.1.0")),
            "/moved.yaml" => status("302 Found", &["Location: /v1.1.0/serving.yaml".to_owned()]),
            "/unsafe.yaml" => status("302 Found", &["Location: http://127.0.0.1:1/".to_owned()]),
            "/circle.yaml" => status("302 Found", &["Location: /circle.yaml".to_owned()]),
            "/endless.yaml" => Answer::Endless,
            "/silent.yaml" => Answer::Silence,
            "/tagged.yaml" if before == 0 => {
                Answer::With("200 OK", vec!["ETag: \"1\"".to_owned()], map("config-tagged", "1.1.0").into_bytes())
            }
            "/tagged.yaml" if before == 1 => status("304 Not Modified", &[]),
            "/tagged.yaml" if before == 2 => ok(map("config-tagged", "1.1.0")),
            "/tagged.yaml" if before == 3 => status("404 Not Found", &[]),
            "/tagged.yaml" => ok(map("config-changed", "1.1.0")),
            "/forbidden.yaml" => status("403 Forbidden", &[]),
            _ => status("404 Not Found", &[]),
        });
        Self { server: server.unwrap(), directory }
    }

    fn run(&self, spec: &str, trusted: bool) -> Output {
        self.run_within("60s", spec, trusted)
    }

    fn run_within(&self, timeout: &str, spec: &str, trusted: bool) -> Output {
        let file = serving(self.directory.path(), spec);
        let mut command = command();
        if trusted {
            command.env("SSL_CERT_FILE", self.directory.path().join("ca.crt"));
        }
        command
            .args(["render", "-o", "json", &format!("--download-timeout={timeout}"), "-f"])
            .arg(file)
            .arg("--releases")
            .arg(small())
            .output()
            .unwrap()
    }

    fn own(&self, path: &str) -> String {
        format!("{{version: 1.1.0, ingress: {{}}, manifests: [{{URL: '{}'}}]}}", self.server.url(path))
    }
}

fn names(list: &str, kind: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).unwrap();
    let found = list["items"].as_array().unwrap().iter().filter(|o| o["kind"] == kind);
    found.map(|o| o["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn manifests_replace_or_extend_release() {
    let fixture = Fixture::new();
    let list = outcome(&fixture.run(&fixture.own("/v${VERSION}/serving.yaml"), true)).unwrap();
    assert_eq!(
        (names(&list, "Namespace"), names(&list, "ConfigMap")),
        (vec!["knative-serving".to_owned()], vec!["config-own".to_owned()])
    );
    let list = outcome(&fixture.run(&fixture.own("/moved.yaml"), true)).unwrap();
    assert_eq!(names(&list, "ConfigMap"), ["config-own"]);

    let url = fixture.server.url("/replacing.yaml?token=query-secret").replace("https://", "https://user:secret@");
    let list =
        outcome(&fixture.run(&format!("{{version: 1.1.0, additionalManifests: [{{URL: '{url}'}}]}}"), true)).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    let defaults: Vec<_> =
        list["items"].as_array().unwrap().iter().filter(|o| o["metadata"]["name"] == "config-defaults").collect();
    assert_eq!(defaults.len(), 1);
    assert!(defaults[0]["data"].is_null(), "the released one is replaced: {}", defaults[0]);
    let asked = fixture.server.requests();
    let asked = asked.iter().find(|a| a.path.starts_with("/replacing")).unwrap();
    assert!(asked.headers.iter().any(|h| h.starts_with("authorization: basic ")), "{asked:?}");
}

#[test]
fn transient_failure_is_retried() {
    let fixture = Fixture::new();
    let list = outcome(&fixture.run(&fixture.own("/later.yaml"), true)).unwrap();
    assert_eq!(names(&list, "ConfigMap"), ["config-later"]);
    assert_eq!(fixture.server.requests().len(), 3);
    outcome(&fixture.run(&fixture.own("/forbidden.yaml"), true)).unwrap_err();
    assert_eq!(fixture.server.requests().len(), 4, "a refusal is final");
}

#[test]
fn failure_names_field_without_secrets() {
    let fixture = Fixture::new();
    for (path, expected) in [
        ("/missing.yaml?token=query-secret", "the server answered 404 Not Found"),
        ("/forbidden.yaml", "the server answered 403 Forbidden"),
        ("/broken.yaml", "it can't be parsed: "),
        ("/page", "it can't be parsed: object 1 is not a mapping but a string"),
        ("/empty.yaml", "there is no resource available in the target manifests"),
        (
            "/other-version.yaml",
            "the version of the manifests 1.2.0 of the component config-own does not match the target version of the operator CR 1.1.0",
        ),
        ("/unsafe.yaml", "it redirects to another scheme, http"),
        ("/circle.yaml", "it redirects more than 5 times"),
        ("/endless.yaml", "it is larger than 10 MiB"),
        ("/silent.yaml", "it took longer than 3s"),
    ] {
        let spec = fixture.own(path).replace("https://", "https://user:secret@");
        let timeout = if path == "/silent.yaml" { "3s" } else { "60s" };
        let error = outcome(&fixture.run_within(timeout, &spec, true)).unwrap_err();
        assert!(
            error.contains("spec.manifests[0].URL: https://127.0.0.1:") && error.contains(expected),
            "{path}: {error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
    let error = outcome(&fixture.run(&fixture.own("/v1.1.0/serving.yaml"), false)).unwrap_err();
    assert!(error.contains("spec.manifests[0].URL: ") && error.to_lowercase().contains("certificate"), "{error}");
    let closed = "{version: 1.1.0, ingress: {}, manifests: [{URL: 'https://127.0.0.1:1/a.yaml'}]}";
    let error = outcome(&fixture.run(closed, true)).unwrap_err();
    assert!(
        error.contains("spec.manifests[0].URL: https://127.0.0.1:1/a.yaml: ") && error.contains("onnection refused"),
        "{error}"
    );
}

#[test]
fn cached_manifest_is_revalidated_and_used_on_failure() {
    knative_operator_runtime::install_crypto();
    let fixture = Fixture::new();
    let authority =
        reqwest::Certificate::from_pem(&std::fs::read(fixture.directory.path().join("ca.crt")).unwrap()).unwrap();
    let client = || reqwest::Client::builder().tls_certs_only([authority.clone()]);
    let url: reqwest::Url = fixture.server.url("/tagged.yaml").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let downloads = Downloads::with(client(), Duration::from_secs(60), Duration::ZERO, HostPolicy::any()).unwrap();
        let (mut names, mut first) = (Vec::new(), None);
        for _ in 0..5 {
            let objects = downloads.objects("n", &url).await.unwrap();
            names.push(objects[0].id().name.clone());
            // Unchanged, then the same content again, then missing: nothing is parsed again.
            if names.last().unwrap() == "config-tagged" {
                assert!(Arc::ptr_eq(first.get_or_insert_with(|| Arc::clone(&objects)), &objects));
            }
        }
        assert_eq!(names, ["config-tagged", "config-tagged", "config-tagged", "config-tagged", "config-changed"]);
        let tagged: Vec<_> =
            fixture.server.requests().iter().map(|a| a.headers.iter().any(|h| h == "if-none-match: \"1\"")).collect();
        assert_eq!(tagged, [false, true, true, false, false], "the last full answer had no ETag");

        // A recent download is not revalidated.
        let downloads =
            Downloads::with(client(), Duration::from_secs(60), Duration::from_secs(60), HostPolicy::any()).unwrap();
        downloads.objects("n", &url).await.unwrap();
        downloads.objects("n", &url).await.unwrap();
        assert_eq!(fixture.server.requests().len(), 6);
    });
}
