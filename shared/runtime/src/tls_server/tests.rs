//! The server on the loopback network: who gives way, and which clients are accepted.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::SystemTime;

use axum::routing::get;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as ClientStream;

use super::*;

const MODEST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const GREEDY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A certificate that signs itself.
struct Identity {
    pem: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        }
    }
}

#[derive(Debug)]
struct Fixed(Arc<CertifiedKey>);

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A running server.
struct Running {
    address: SocketAddr,
    identity: Identity,
}

impl Running {
    async fn start(connections: usize, clients: Option<Arc<dyn ClientCertVerifier>>) -> Self {
        crate::install_crypto();
        let identity = Identity::new();
        let key = any_supported_type(&identity.key).unwrap();
        let resolver = Arc::new(Fixed(Arc::new(CertifiedKey::new(vec![identity.certificate.clone()], key))));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "ok" }));
        let server = Arc::new(Server::new(resolver, clients, router, Limits { connections, memory: 0 }));
        tokio::spawn(server.run(listener, CancellationToken::new()));
        Self { address, identity }
    }

    /// Connects from `peer`, as `client`.
    async fn connect(&self, peer: Ipv4Addr, client: Option<&Identity>) -> io::Result<ClientStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.identity.certificate.clone()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match client {
            Some(client) => {
                config.with_client_auth_cert(vec![client.certificate.clone()], client.key.clone_key()).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((peer, 0)))?;
        let stream = socket.connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }

    /// Whether `client` gets a response.
    async fn answers(&self, client: Option<&Identity>) -> bool {
        match self.connect(MODEST, client).await {
            Ok(mut stream) => ask(&mut stream).await.is_ok(),
            Err(_) => false,
        }
    }
}

/// Sends a request and reads its response.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let mut response = Vec::new();
    while !response.ends_with(b"ok") {
        if stream.read_buf(&mut response).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

#[tokio::test]
async fn peer_with_most_connections_makes_room_for_newcomers() {
    let server = Running::start(3, None).await;
    let mut greedy = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect(GREEDY, None).await.unwrap();
        ask(&mut stream).await.unwrap();
        greedy.push(stream);
    }
    let mut modest = server.connect(MODEST, None).await.unwrap();
    ask(&mut modest).await.unwrap();
    // The connection that was idle for longest is closed, the others are not.
    let mut rest = Vec::new();
    let _ = greedy[0].read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    ask(&mut greedy[1]).await.unwrap();
    for _ in 0..10 {
        let mut stream = server.connect(GREEDY, None).await.unwrap();
        ask(&mut stream).await.unwrap();
        greedy.push(stream);
    }
    ask(&mut modest).await.unwrap();
}

#[tokio::test]
async fn only_clients_of_the_authorities_in_the_file_are_answered() {
    crate::install_crypto();
    let (first, second) = (Identity::new(), Identity::new());
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(ClientCa::read(file.path().to_owned()).is_err_and(|error| matches!(error, ClientCaError::Empty(..))));
    let mut hours = 0;
    // The times of two changes differ.
    let mut write = |file: &Path, text: &str| {
        hours += 1;
        std::fs::write(file, text).unwrap();
        let file = std::fs::File::options().write(true).open(file).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(3600 * hours)).unwrap();
    };
    write(file.path(), &first.pem);
    let server = Running::start(16, Some(Arc::new(ClientCa::read(file.path().to_owned()).unwrap()))).await;
    assert!(server.answers(Some(&first)).await);
    assert!(!server.answers(Some(&second)).await && !server.answers(None).await);
    write(file.path(), &second.pem);
    assert!(server.answers(Some(&second)).await && !server.answers(Some(&first)).await);
    // Invalid contents are ignored.
    write(file.path(), "rubbish");
    assert!(server.answers(Some(&second)).await && !server.answers(None).await);
}

#[tokio::test]
async fn plain_server_limits_connections_and_headers() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(|| async { "ok" }));
    let (stop, limits) = (CancellationToken::new(), Limits { connections: 2, memory: 0 });
    let server = tokio::spawn(Arc::new(Server::plain(router, limits)).run(listener, stop.clone()));
    let connect = async |peer| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((peer, 0))).unwrap();
        socket.connect(address).await.unwrap()
    };
    let mut large = connect(GREEDY).await;
    let headers = [&b"GET / HTTP/1.1\r\nX: "[..], &vec![b'a'; 2 * PLAIN_BUFFER]].concat();
    let (mut answer, _) = (Vec::new(), large.write_all(&headers).await);
    let _ = large.read_to_end(&mut answer).await;
    assert!(!answer.windows(3).any(|part| part == b"200"), "{}", String::from_utf8_lossy(&answer));
    // The third connection of a peer takes the place of its first one.
    let (mut first, _second) = (connect(GREEDY).await, connect(GREEDY).await);
    let mut modest = connect(MODEST).await;
    ask(&mut modest).await.unwrap();
    answer.clear();
    let _ = first.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    // At the end, idle connections are closed immediately.
    stop.cancel();
    server.await.unwrap();
}
