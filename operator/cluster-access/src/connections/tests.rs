//! Tests of connections with an API server that answers over plain HTTP.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::binding::Annotations;
use crate::credential::tests::age;
use crate::metrics::Unmeasured;
use crate::profile::{CredentialSource, Plugin};
use crate::secret::SecretReader;

/// Time limit of the API server; the plugin takes longer.
const LIMIT: Duration = Duration::from_millis(500);

/// Answers one request: 401, unless it has `token`.
async fn answer(stream: TcpStream, token: &str) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut is_permitted) = (String::new(), false);
    while stream.read_line(&mut line).await? > 0 && !line.trim().is_empty() {
        is_permitted |= line.trim().ends_with(&format!("Bearer {token}"));
        line.clear();
    }
    let version = json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    let refusal =
        json!({"kind": "Status", "status": "Failure", "reason": "Unauthorized", "message": "no", "code": 401});
    let (status, body) = if is_permitted { ("200 OK", version) } else { ("401 Unauthorized", refusal) };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    stream.shutdown().await
}

/// The URL of an API server that accepts `token` only.
async fn api_server(token: &'static str) -> http::Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Err means that the client has closed the connection.
            tokio::spawn(async move { answer(stream, token).await.ok() });
        }
    });
    url
}

/// Connections, for which Secrets have no part.
fn connections(timeout: Duration) -> Connections {
    let nowhere = tower::service_fn(|_: Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("there is no hub"))
    });
    let annotations = Annotations { profiles: "a", servers: "b", sent_to: "c" };
    let (hub, namespace) = (Client::new(nowhere, "n"), "n".to_owned());
    let secrets = SecretReader { hub, namespace, requires_binding: false, annotations, program: "test" };
    let fetcher = CredentialFetcher { secrets, timeout, metrics: Arc::new(Unmeasured) };
    Connections::new(fetcher, Arc::new(|| true))
}

/// A connection to `server` by a plugin that is a shell script.
fn access(server: http::Uri, script: &str) -> Arc<Access> {
    let plugin = Plugin {
        provider: "test".to_owned(),
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: BTreeMap::new(),
        api_version: "client.authentication.k8s.io/v1".to_owned(),
        info: json!({}),
    };
    let source = CredentialSource::Plugin(plugin);
    Arc::new(Access { server, authority: None, server_name: None, insecure: false, proxy: None, source })
}

fn reference() -> ClusterProfileReference {
    ClusterProfileReference { name: "a".to_owned(), namespace: "fleet".to_owned() }
}

#[tokio::test]
async fn report_does_not_wait_for_connections_that_are_being_made() {
    let connections = connections(LIMIT);
    let slot =
        |name: &str| connections.slot(&ClusterProfileReference { namespace: "n".to_owned(), name: name.to_owned() });
    let (_new, busy) = (slot("new"), slot("busy"));
    let _connecting = busy.lock().await;
    let report =
        |cluster: &str, state| ConnectionReport { cluster: cluster.to_owned(), state, ..ConnectionReport::default() };
    let expected = [report("n/busy", ConnectionState::Connecting), report("n/new", ConnectionState::Disconnected)];
    assert_eq!(connections.report(), expected);
}

#[tokio::test]
async fn spokes_count_while_they_are_connected() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let script =
        r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'"#;
    let (connections, answers) = (connections(LIMIT), access(api_server("t").await, script));
    let reaches_nobody = access("http://127.0.0.1:1/".parse().unwrap(), script);
    let (spokes, of) = (connections.spokes(), |access: &Arc<Access>| Access::clone(access));
    let count = || spokes.load(Ordering::Relaxed);
    assert!(connections.get(&reference(), of(&reaches_nobody), false).await.is_err());
    assert_eq!(count(), 0, "somebody's ClusterProfile");
    for _ in 0..2 {
        assert!(connections.get(&reference(), of(&answers), true).await.is_ok());
        assert_eq!(count(), 1);
    }
    assert!(connections.get(&reference(), of(&reaches_nobody), false).await.is_err());
    assert_eq!(count(), 0, "it is another cluster now");
    assert!(connections.get(&reference(), of(&answers), false).await.is_ok());
    let former = connections.slot(&reference());
    connections.remove(&reference());
    assert_eq!(count(), 0);
    // What was connecting meanwhile ends.
    connections.report_connected(&reference(), &former, true);
    assert_eq!(count(), 0);
    assert!(connections.get(&reference(), of(&answers), false).await.is_ok());
    connections.report_connected(&reference(), &former, false);
    assert_eq!(count(), 1);
}

#[tokio::test]
async fn provider_may_take_longer_than_the_api_server() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    // The first token is refused, and the plugin takes its time for the second one.
    let script = format!(
        r#"token=old; [ ! -e {0} ] || {{ token=new; sleep 1; }}; : >{0}
        echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"'$token'"}}}}'"#,
        folder.path().join("called").display()
    );
    let (connections, access) = (connections(Duration::from_secs(60)), access(api_server("new").await, &script));
    let connection = connections.connect(&reference(), &access, None).await.unwrap();
    // A refused token is renewed if it is not as good as new.
    age(&connection.credentials);
    probe(&reference(), &connection, LIMIT).await.unwrap();
}

#[tokio::test]
async fn silent_api_server_has_a_time_limit() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The kernel accepts connections, and nobody reads.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let script =
        r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'"#;
    let (connections, access) = (connections(Duration::from_secs(60)), access(server, script));
    let connection = connections.connect(&reference(), &access, None).await.unwrap();
    // Over HTTP/1.1, which a server without TLS speaks.
    connection.service.reconnect(false).await.unwrap();
    let error = probe(&reference(), &connection, LIMIT).await.unwrap_err();
    assert_eq!(error.reason, Reason::RemoteClusterUnreachable);
    assert!(error.message.contains("did not answer within 500ms"), "{error}");
}
