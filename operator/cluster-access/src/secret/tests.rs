//! Tests of who gets the credential in a Secret.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::super::profile::CredentialSource;
use super::*;

const CLUSTER_PROFILE: &str = "example.com/cluster-profile";
const SENT_TO: &str = "example.com/sent-to";
const ANNOTATIONS: Annotations =
    Annotations { profiles: CLUSTER_PROFILE, servers: "example.com/server", sent_to: SENT_TO };

type Patches = Arc<Mutex<Vec<Value>>>;

/// Reads from a hub with the Secret `prod` with `annotations`; also returns the patches that
/// the hub gets.
fn reader(annotations: &Value, requires_binding: bool) -> (SecretReader, Patches) {
    let meta = json!({"name": "prod", "namespace": "n", "resourceVersion": "7", "annotations": annotations});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"token": "dA=="}}).to_string();
    let patches = Patches::default();
    let log = Arc::clone(&patches);
    let answers = tower::service_fn(move |request: Request<Body>| {
        let (log, secret) = (Arc::clone(&log), secret.clone());
        async move {
            let request_path = request.uri().path().to_owned();
            if request.method() == Method::PATCH {
                let body = request.into_body().collect_bytes().await.unwrap();
                log.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            }
            let is_there = request_path.ends_with("/n/secrets/prod");
            let status =
                json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
            let (code, body) = if is_there { (200, secret) } else { (404, status.to_string()) };
            let response = Response::builder().status(code).body(Body::from(body.into_bytes()));
            Ok::<_, std::convert::Infallible>(response.unwrap())
        }
    });
    let hub = Client::new(answers, "n");
    (secret_reader(hub, requires_binding), patches)
}

fn secret_reader(hub: Client, requires_binding: bool) -> SecretReader {
    let namespace = "n".to_owned();
    SecretReader { hub, namespace, requires_binding, annotations: ANNOTATIONS, program: "example" }
}

fn source() -> SecretSource {
    SecretSource::token("p", "prod")
}

fn access() -> Access {
    Access { authority: None, ..crate::same_cluster::tests::access("https://h:1") }
}

fn cluster() -> ClusterProfileReference {
    ClusterProfileReference { name: "prod".to_owned(), namespace: "fleet".to_owned() }
}

#[tokio::test]
async fn kubeconfig_is_read_only_for_the_profile_of_its_secret() {
    let source = SecretSource { content: SecretContent::Kubeconfig { context: None }, ..source() };
    let (reader, patches) = reader(&json!({}), false);
    let refused = reader.read(&source, &cluster(), &access(), Duration::from_secs(5)).await.unwrap_err();
    assert_eq!((refused.reason, patches.lock().unwrap().len()), (Reason::CredentialNotBound, 0), "{refused}");
    let (reader, _) = self::reader(&json!({CLUSTER_PROFILE: "fleet/prod"}), false);
    let refused = reader.read(&source, &cluster(), &access(), Duration::from_secs(5)).await.unwrap_err();
    // It is no kubeconfig.
    assert_eq!(refused.reason, Reason::AccessProviderFailed, "{refused}");
}

/// Reads from a hub with a Secret with `annotations`; also returns the patches that it got.
async fn read(
    annotations: &Value,
    requires_binding: bool,
) -> (Result<(String, Option<String>), AccessError>, Vec<Value>) {
    let (reader, patches) = reader(annotations, requires_binding);
    let read = reader.read(&source(), &cluster(), &access(), Duration::from_secs(5)).await;
    let token = |credential: Credential| credential.token.unwrap().expose_secret().to_owned();
    let patches = patches.lock().unwrap().clone();
    (read.map(|(credential, remedy)| (token(credential), remedy)), patches)
}

#[tokio::test]
async fn destination_is_recorded_before_it_is_sent() {
    for (annotations, strict) in [(json!({}), false), (json!({CLUSTER_PROFILE: "fleet/prod"}), true)] {
        let (given, patches) = read(&annotations, strict).await;
        let (token, remedy) = given.unwrap();
        let is_told = remedy.is_some_and(|remedy| remedy.contains("kubectl annotate secret prod -n n"));
        assert_eq!((token.as_str(), is_told), ("t", !strict));
        let [patch] = &patches[..] else { unreachable!("one patch: {patches:?}") };
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let sent = &patch["metadata"]["annotations"][SENT_TO];
        assert!(sent.as_str().is_some_and(|sent| sent.starts_with(r#"{"fleet/prod":"https://h:1/ "#)), "{sent}");
        // Known from then on.
        let mut known = annotations.clone();
        known[SENT_TO] = sent.clone();
        let (again, patches) = read(&known, strict).await;
        assert!(again.is_ok() && patches.is_empty());
    }
}

#[tokio::test]
async fn restart_reads_a_limited_number_of_secrets_at_the_same_time() {
    // Current and largest number of reads.
    let reads = Arc::new(Mutex::new((0usize, 0usize)));
    let log = Arc::clone(&reads);
    let answers = tower::service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let is_read = request.method() == Method::GET;
            if is_read {
                let mut reads = log.lock().unwrap();
                *reads = (reads.0 + 1, reads.1.max(reads.0 + 1));
            }
            // All others that may have a turn meanwhile.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            log.lock().unwrap().0 -= usize::from(is_read);
            let meta = json!({"name": "prod", "namespace": "n", "resourceVersion": "7"});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"token": "dA=="}});
            let body = Body::from(secret.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(Response::new(body))
        }
    });
    let reader = secret_reader(Client::new(answers, "n"), false);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..3 * MAX_READS {
        let reader = reader.clone();
        all.spawn(async move { reader.read(&source(), &cluster(), &access(), Duration::from_secs(60)).await.is_ok() });
    }
    assert_eq!(all.join_all().await, vec![true; 3 * MAX_READS]);
    let (now, most) = *reads.lock().unwrap();
    assert!(now == 0 && (2..=MAX_READS).contains(&most), "{now} {most}");
}

#[tokio::test]
async fn plugin_is_started_only_for_the_profile_of_a_secret() {
    let (bound, unbound) = (json!({CLUSTER_PROFILE: "fleet/other"}), json!({}));
    let by_plugin = |annotations: &Value, own: &str, config: Value| {
        let info = json!({"spec": {"cluster": {"config": config}}});
        let plugin = Plugin {
            provider: "official".to_owned(),
            command: "/plugin".to_owned(),
            args: Vec::new(),
            env: std::collections::BTreeMap::new(),
            api_version: "client.authentication.k8s.io/v1".to_owned(),
            info,
        };
        let reader = SecretReader { namespace: own.to_owned(), ..reader(annotations, false).0 };
        async move {
            let access = Access { source: CredentialSource::Plugin(plugin.clone()), ..access() };
            reader.permit(&plugin, &cluster(), &access, Duration::from_secs(5)).await
        }
    };
    let elsewhere = json!({"name": "prod", "namespace": "n", "key": "k"});
    for (annotations, own, config, why) in [
        (&bound, "n", json!({"clusterName": "prod"}), "is not bound to ClusterProfile fleet/prod"),
        (&bound, "n", json!({"ClusterName": "prod"}), "is not bound to ClusterProfile fleet/prod"),
        (&bound, "n", json!({"name": "prod", "key": "k"}), "is not bound to ClusterProfile fleet/prod"),
        (&bound, "own", elsewhere.clone(), "is not bound to ClusterProfile fleet/prod"),
        // Its credential could be sent to any number of servers.
        (&unbound, "own", elsewhere.clone(), "names no ClusterProfile"),
    ] {
        let refused = by_plugin(annotations, own, config).await.unwrap_err();
        let start = format!("access provider official: Secret n/prod {why}");
        assert!(refused.reason == Reason::CredentialNotBound && refused.message.starts_with(&start), "{refused}");
    }
    let named = json!({CLUSTER_PROFILE: "fleet/prod"});
    assert!(by_plugin(&named, "own", elsewhere).await.unwrap().is_some_and(|(remedy, _)| remedy.is_none()));
    // Neither names a Secret.
    for config in [json!({"clusterName": "missing"}), json!({"region": 1})] {
        assert_eq!(by_plugin(&bound, "n", config).await, Ok(None));
    }
}

#[tokio::test]
async fn secret_of_another_namespace_names_profile_and_server() {
    let elsewhere = SecretSource { namespace: Some("n".to_owned()), ..source() };
    let (servers, server) = (ANNOTATIONS.servers, "https://h:1/$(id)");
    let access = Access { server: server.parse().unwrap(), authority: Some(b"a".to_vec()), ..access() };
    for (annotations, part) in [
        (json!({}), "does not name ClusterProfile fleet/prod"),
        (json!({servers: server}), "does not name ClusterProfile fleet/prod"),
        (json!({CLUSTER_PROFILE: "fleet/prod"}), "kubectl annotate secret prod -n n example.com/server=URL"),
        (json!({CLUSTER_PROFILE: "fleet/prod", servers: "https://other:1"}), "is not bound to the server"),
        (json!({CLUSTER_PROFILE: "fleet/prod", servers: server}), ""),
    ] {
        let (reader, patches) = reader(&annotations, false);
        let reader = SecretReader { namespace: "own".to_owned(), ..reader };
        let read = reader.read(&elsewhere, &cluster(), &access, Duration::from_secs(5)).await;
        match read {
            Ok((credential, remedy)) => assert!(part.is_empty() && credential.token.is_some() && remedy.is_none()),
            Err(refused) => {
                let is_part = !part.is_empty() && refused.message.contains(part);
                assert!(is_part && refused.reason == Reason::CredentialNotBound, "{annotations}: {refused}");
            }
        }
        assert!(patches.lock().unwrap().is_empty(), "{annotations}");
    }
}

#[tokio::test]
async fn profile_does_not_learn_whether_a_secret_exists() {
    let namespaces = [("own", "n", false), ("n", "n", true)];
    for (own, namespace, requires_binding) in namespaces {
        let mut messages = Vec::new();
        for (name, annotations) in [
            ("prod", json!({})),
            ("prod", json!({CLUSTER_PROFILE: "fleet/other", ANNOTATIONS.servers: "https://other:1"})),
            ("prod", json!({CLUSTER_PROFILE: "fleet/other", SENT_TO: "[]"})),
            ("miss", json!({})),
        ] {
            let (reader, patches) = reader(&annotations, requires_binding);
            let reader = SecretReader { namespace: own.to_owned(), ..reader };
            let source = SecretSource { namespace: Some(namespace.to_owned()), ..SecretSource::token("p", name) };
            let refused = reader.read(&source, &cluster(), &access(), Duration::from_secs(5)).await.unwrap_err();
            assert!(refused.reason == Reason::CredentialNotBound && patches.lock().unwrap().is_empty(), "{refused}");
            messages.push(refused.message.replace("miss", "prod"));
        }
        messages.dedup();
        assert_eq!(messages.len(), 1, "{messages:#?}");
        assert!(messages[0].contains("does not exist"), "{messages:?}");
    }
}

#[tokio::test]
async fn refused_secret_is_not_changed() {
    for (annotations, strict) in [(json!({}), true), (json!({CLUSTER_PROFILE: "fleet/other"}), false)] {
        let (read, patches) = read(&annotations, strict).await;
        let refused = read.unwrap_err();
        assert!(refused.reason == Reason::CredentialNotBound && patches.is_empty(), "{refused}");
        assert!(refused.message.starts_with("built-in provider secretreader: Secret n/prod "), "{refused}");
    }
}
