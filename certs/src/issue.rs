//! Issues authorities and the certificates of servers (ECDSA P-256). Pure but for randomness: the time is an argument.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::material::{Authority, Material};

/// How long certificates live.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Life of an authority.
    pub authority: Duration,
    /// Life of the server's certificate.
    pub leaf: Duration,
}

impl Lifetimes {
    /// How long one step of a change of authorities is left to settle, until every API server and every replica has noticed.
    pub fn settle(&self) -> Duration {
        (self.leaf / 10i32).clamp(Duration::seconds(1), Duration::minutes(1))
    }
}

/// Clocks may differ: certificates are valid from this long ago.
pub const SKEW: Duration = Duration::minutes(5);

/// A new authority. Each has a name of its own, so that a certificate tells which one it is of.
pub fn authority(now: OffsetDateTime, lifetimes: Lifetimes) -> Result<Authority, rcgen::Error> {
    let key = KeyPair::generate()?;
    let number: String = key.public_key_raw().iter().skip(1).take(6).map(|byte| format!("{byte:02x}")).collect();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("knative-operator webhook authority {number}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = now - SKEW;
    params.not_after = now + lifetimes.authority;
    Ok(Authority { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// A new certificate for a server with `names`, by `authority`, and its key, both in PEM.
pub fn leaf(
    authority: &Authority,
    names: &[String],
    now: OffsetDateTime,
    lifetimes: Lifetimes,
) -> Result<(String, String), rcgen::Error> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, names.first().cloned().unwrap_or_default());
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.not_before = now - SKEW;
    params.not_after = now + lifetimes.leaf;
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
}

/// Everything new.
pub fn all(names: &[String], now: OffsetDateTime, lifetimes: Lifetimes) -> Result<Material, rcgen::Error> {
    let authority = authority(now, lifetimes)?;
    let (leaf, leaf_key) = leaf(&authority, names, now, lifetimes)?;
    Ok(Material { authority, next: None, old: String::new(), leaf, leaf_key })
}

impl Material {
    /// The same with a new certificate of the server.
    pub fn renewed(
        mut self,
        names: &[String],
        now: OffsetDateTime,
        lifetimes: Lifetimes,
    ) -> Result<Self, rcgen::Error> {
        (self.leaf, self.leaf_key) = leaf(&self.authority, names, now, lifetimes)?;
        Ok(self)
    }

    /// The first step to another authority: the next one is trusted, too.
    pub fn announced(mut self, now: OffsetDateTime, lifetimes: Lifetimes) -> Result<Self, rcgen::Error> {
        self.next = Some(authority(now, lifetimes)?);
        Ok(self)
    }

    /// The second step: the next authority issues, the one before is still trusted.
    pub fn promoted(
        mut self,
        names: &[String],
        now: OffsetDateTime,
        lifetimes: Lifetimes,
    ) -> Result<Self, rcgen::Error> {
        if let Some(next) = self.next.take() {
            self.old = std::mem::replace(&mut self.authority, next).certificate;
        }
        self.renewed(names, now, lifetimes)
    }

    /// The last step: only the authority that issues is trusted.
    #[must_use]
    pub fn settled(mut self) -> Self {
        self.old.clear();
        self
    }
}
