//! The authority of a cluster and its certificates.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};
use tokio_rustls::TlsAcceptor;

use crate::Result;

/// An authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// A new authority.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Writes `DIR/ca.crt` and `DIR/ca.key`.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::write(dir.join("ca.crt"), self.pem())?;
        Ok(std::fs::write(dir.join("ca.key"), self.0.key().serialize_pem())?)
    }

    /// A certificate for user `name` of `group`, or for a server at `addresses` and `names`.
    pub fn issue(&self, name: &str, group: Option<&str>, addresses: &[IpAddr], names: &[&str]) -> Result<Issued> {
        self.issue_from(CertificateParams::default(), name, group, addresses, names)
    }

    /// A TLS acceptor on the loopback network for HTTP/2 and HTTP/1.1.
    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        self.issue("server", None, &[Ipv4Addr::LOCALHOST.into()], &["localhost"])?.acceptor()
    }

    /// A certificate for a server at `addresses` that is valid for a day, starting `days` days from
    /// now.
    pub fn issue_in(&self, days: i64, addresses: &[IpAddr]) -> Result<Issued> {
        let mut params = CertificateParams::default();
        params.not_before = OffsetDateTime::now_utc() + Duration::days(days);
        params.not_after = params.not_before + Duration::days(1);
        self.issue_from(params, "server", None, addresses, &[])
    }

    fn issue_from(
        &self,
        mut params: CertificateParams,
        name: &str,
        group: Option<&str>,
        addresses: &[IpAddr],
        names: &[&str],
    ) -> Result<Issued> {
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names.extend(addresses.iter().map(|a| SanType::IpAddress(*a)));
        for name in names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        let key = KeyPair::generate()?;
        Ok(Issued { certificate: params.signed_by(&key, &self.0)?.pem(), key: key.serialize_pem() })
    }
}

impl Issued {
    /// A TLS acceptor for HTTP/2 and HTTP/1.1.
    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let chain =
            CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect::<std::result::Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Writes `DIR/NAME.crt` and `DIR/NAME.key`.
    pub fn write(&self, dir: &Path, name: &str) -> Result<()> {
        std::fs::write(dir.join(format!("{name}.crt")), &self.certificate)?;
        Ok(std::fs::write(dir.join(format!("{name}.key")), &self.key)?)
    }
}

/// Writes the key pair that signs ServiceAccount tokens: `DIR/sa.key` and `DIR/sa.pub`.
pub fn service_account_keys(dir: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    std::fs::write(dir.join("sa.key"), key.serialize_pem())?;
    Ok(std::fs::write(dir.join("sa.pub"), key.public_key_pem())?)
}
