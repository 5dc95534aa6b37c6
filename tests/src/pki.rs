//! The authority of one cluster and what it issues.

use std::net::IpAddr;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};

use time::{Duration, OffsetDateTime};

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

    /// A certificate for user `name` of `group`, or for a server at `addresses` and `names`.
    pub fn issue(&self, name: &str, group: Option<&str>, addresses: &[IpAddr], names: &[&str]) -> Result<Issued> {
        self.issue_from(CertificateParams::default(), name, group, addresses, names)
    }

    /// A certificate for a server at `addresses` that is valid for a day, from so many days from now on.
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
