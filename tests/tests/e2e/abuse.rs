//! Invalid and hostile requests to the webhook: each gets the right status soon, without cost for
//! others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use knative_operator_tests::{Result, measure, tls};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};

use crate::support::{fleet, run, step};

/// Time limit of an answer: the webhook waits 5 s for a body, the rest is for a loaded machine.
const SLOW: Duration = Duration::from_secs(30);
/// Time limit of a connection that never sends: the webhook closes it after 15 s, and one that it
/// takes for idle after 120 s.
const SILENT: Duration = Duration::from_secs(60);
/// Time limit of two reviews beside silent connections, which are closed after 15 s.
const OTHERS: Duration = Duration::from_secs(12);

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SILENT * 2))?;
    Ok(stream)
}

fn secure(address: SocketAddr) -> Result<Tls> {
    let connection = ClientConnection::new(Arc::new(tls::insecure_config()), ServerName::try_from("webhook")?)?;
    Ok(StreamOwned::new(connection, connect(address)?))
}

/// Everything until the peer closes the connection.
fn rest(stream: &mut impl Read) -> String {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(read) = stream.read(&mut part) {
        if read == 0 {
            break;
        }
        all.extend_from_slice(&part[..read]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// The response to a POST of `body` with Content-Length `length`.
fn post(address: SocketAddr, body: &[u8], length: usize) -> Result<String> {
    let mut stream = secure(address)?;
    let head = format!(
        "POST /validate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    // A client that is refused early doesn't read everything.
    let _ = stream.write_all(body);
    let _ = stream.flush();
    Ok(rest(&mut stream))
}

/// A review of a resource with a text that is JSON with a text that is JSON, and so on: each is as
/// deep as serde_json reads.
fn nested() -> String {
    const KEY: &str = "$serde_json::private::RawValue";
    let mut text = "0".to_owned();
    for _ in 0..150 {
        let quoted = text.replace('\\', "\\u005c").replace('"', "\\u0022");
        text = format!(r#"{}{{"{KEY}":"{quoted}"}}{}"#, "[".repeat(124), "]".repeat(124));
    }
    let spec = json!({"config": {"network": {KEY: text}}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "nested", "operation": "CREATE",
        "kind": {"group": "operator.knative.dev", "version": "v1beta1", "kind": "KnativeServing"},
        "userInfo": {"username": "somebody"}, "object": {"metadata": {"name": "a", "namespace": "a"}, "spec": spec}}})
    .to_string()
}

async fn bodies_get_right_status(address: SocketAddr) -> Result<()> {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deeper = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","object":{deep}}}}}"#
    );
    let review = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "request": {"uid": "1"}}).to_string();
    let answers = tokio::task::spawn_blocking(move || -> Result<Vec<(&'static str, String, Duration)>> {
        let mut answers = Vec::new();
        let mut ask = |what, body: &[u8], length| -> Result<()> {
            let started = Instant::now();
            let answer = post(address, body, length)?;
            answers.push((what, answer, started.elapsed()));
            Ok(())
        };
        ask("empty", b"", 0)?;
        ask("truncated", br#"{"apiVersion": "admission.k8s.io/v1", "kind": "Admis"#, 52)?;
        ask("deep", deep.as_bytes(), deep.len())?;
        ask("deeper", deeper.as_bytes(), deeper.len())?;
        let old = review("admission.k8s.io/v1beta1", "AdmissionReview");
        ask("wrong version", old.as_bytes(), old.len())?;
        let other = review("admission.k8s.io/v1", "TokenReview");
        ask("wrong kind", other.as_bytes(), other.len())?;
        ask("huge Content-Length", b"{", 1 << 40)?;
        ask("incomplete body", b"{", 1000)?;
        let nested = nested();
        ask("nested", nested.as_bytes(), nested.len())?;
        Ok(answers)
    })
    .await??;
    for (what, answer, took) in &answers {
        let expected = match *what {
            "huge Content-Length" => "HTTP/1.1 413",
            "incomplete body" => "HTTP/1.1 408",
            "nested" => "HTTP/1.1 200",
            _ => "HTTP/1.1 400",
        };
        assert!(answer.starts_with(expected), "{what}: {answer}");
        assert!(*took < SLOW, "{what}: after {took:?}");
    }
    Ok(())
}

/// A huge body without a length, requests without TLS or with an old version, and connections that
/// send nothing.
async fn connections_end_soon(address: SocketAddr) -> Result<()> {
    // A huge body without a length, in chunks.
    let (plain, old, silent, unused) = tokio::task::spawn_blocking(move || -> Result<_> {
        let mut stream = secure(address)?;
        stream.write_all(
            b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        )?;
        let piece = vec![b' '; 1 << 20];
        for _ in 0..16 {
            if stream
                .write_all(b"100000\r\n")
                .and_then(|()| stream.write_all(&piece))
                .and_then(|()| stream.write_all(b"\r\n"))
                .is_err()
            {
                break;
            }
        }
        let answer = rest(&mut stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
        // Without TLS.
        let mut stream = connect(address)?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: webhook\r\n\r\n")?;
        let plain = rest(&mut stream);
        // A ClientHello of TLS 1.0: version 3.1 in record and message, one cipher suite, no
        // extensions.
        let mut stream = connect(address)?;
        let hello: Vec<u8> =
            [&[0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 1][..], &[7; 32], &[0, 0, 2, 0, 0x2f, 1, 0]].concat();
        stream.write_all(&hello)?;
        let mut alert = Vec::new();
        let _ = stream.read_to_end(&mut alert);
        // A connection that never sends is closed before the handshake. After it, it stays: an
        // API server keeps connections that it hasn't used yet.
        let mut unused = secure(address)?;
        unused.conn.complete_io(&mut unused.sock)?;
        let (started, mut stream) = (Instant::now(), connect(address)?);
        let _ = rest(&mut stream);
        let silent = started.elapsed();
        unused.sock.set_read_timeout(Some(Duration::from_secs(3)))?;
        let closed = unused.read(&mut [0]).map_err(|error| error.kind());
        Ok((plain, alert, silent, closed))
    })
    .await??;
    assert!(
        plain.starts_with("HTTP/1.1 400") && plain.ends_with("this port requires HTTPS; use https://\n"),
        "{plain}"
    );
    // A fatal alert: handshake_failure (40) or protocol_version (70).
    assert!(matches!(old[..], [0x15, _, _, _, _, 2, 40 | 70]), "{old:?}");
    assert!(silent < SILENT, "{silent:?}");
    assert_eq!(unused, Err(std::io::ErrorKind::WouldBlock), "an unused connection was closed");
    Ok(())
}

/// Many silent connections don't delay others.
async fn silent_connections_delay_nobody(address: SocketAddr) -> Result<()> {
    let idle = (0..200).map(|_| connect(address)).collect::<Result<Vec<_>>>()?;
    let review = |request: Value| {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
    };
    let whole = review(
        json!({"uid": "7", "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "userInfo": {}, "object": {}}),
    );
    let empty = review(json!({"uid": "8"}));
    let started = Instant::now();
    let [answer, refused] = tokio::task::spawn_blocking(move || -> Result<_> {
        Ok([post(address, whole.as_bytes(), whole.len())?, post(address, empty.as_bytes(), empty.len())?])
    })
    .await??;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""uid":"7","allowed":true"#), "{answer}");
    // A review without its parts is refused, with its own uid.
    assert!(refused.starts_with("HTTP/1.1 200") && refused.contains(r#""uid":"8","allowed":false"#), "{refused}");
    assert!(started.elapsed() < OTHERS, "{:?}", started.elapsed());
    drop(idle);
    Ok(())
}

#[test]
fn hostile_requests_get_right_status_soon() {
    run(async {
        let fleet = fleet().await?;
        let (pod, _) = fleet.product.webhook.as_ref().ok_or("no webhook")?;
        let (address, id) = (SocketAddr::from((pod.address, 8443)), pod.process.pid()?);
        let before = measure::resident(id)?;
        step("bodies", bodies_get_right_status(address)).await?;
        step("connections", connections_end_soon(address)).await?;
        step("silent connections", silent_connections_delay_nobody(address)).await?;
        let after = measure::resident(id)?;
        assert!(after < before + 32 * 1024, "resident memory went from {before} to {after} KiB");
        Ok(())
    });
}
