//! Issues authorities and server certificates (ECDSA P-256). Pure apart from randomness: the time
//! is an argument.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::material::{Authority, Material};
use crate::validity::Validity;

/// Lifetimes of certificates.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Lifetime of an authority.
    pub authority: Duration,
    /// Lifetime of a server certificate.
    pub leaf: Duration,
}

impl Lifetimes {
    /// Duration of each step of an authority rotation, in which all API servers and replicas notice
    /// the step.
    pub fn step_duration(&self) -> Duration {
        (self.leaf / 10i32).clamp(Duration::seconds(1), Duration::minutes(1))
    }
}

/// Issues an authority. Each has its own name, which certificates refer to.
pub fn authority(validity: Validity) -> Result<Authority, rcgen::Error> {
    let key = KeyPair::generate()?;
    let number: String = key.public_key_raw().iter().skip(1).take(6).map(|byte| format!("{byte:02x}")).collect();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("knative-operator webhook authority {number}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    (params.not_before, params.not_after) = (validity.starts, validity.expires);
    Ok(Authority { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// Issues a server certificate for `names` by `authority`; returns certificate and key in PEM.
pub fn leaf(authority: &Authority, names: &[String], validity: Validity) -> Result<(String, String), rcgen::Error> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, names.first().cloned().unwrap_or_default());
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    (params.not_before, params.not_after) = (validity.starts, validity.expires);
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
}

/// Issues an authority and a server certificate.
pub fn issue_all(names: &[String], now: OffsetDateTime, lifetimes: Lifetimes) -> Result<Material, rcgen::Error> {
    let authority = authority(Validity::of_new(now, lifetimes.authority, None))?;
    let (leaf, leaf_key) = leaf(&authority, names, Validity::of_new(now, lifetimes.leaf, None))?;
    Ok(Material { authority, next: None, old: String::new(), leaf, leaf_key })
}

impl Material {
    /// The same with a new server certificate.
    pub fn with_new_leaf(
        mut self,
        names: &[String],
        now: OffsetDateTime,
        lifetimes: Lifetimes,
    ) -> Result<Self, rcgen::Error> {
        let validity = Validity::of_new(now, lifetimes.leaf, Validity::of(&self.leaf));
        (self.leaf, self.leaf_key) = leaf(&self.authority, names, validity)?;
        Ok(self)
    }

    /// First step of a rotation: another authority is trusted, too.
    pub fn with_next_authority(mut self, now: OffsetDateTime, lifetimes: Lifetimes) -> Result<Self, rcgen::Error> {
        let next = self.next.as_ref().and_then(|next| Validity::of(&next.certificate));
        let previous = next.or_else(|| Validity::of(&self.authority.certificate));
        self.next = Some(authority(Validity::of_new(now, lifetimes.authority, previous))?);
        Ok(self)
    }

    /// Second step: the next authority issues, the previous one is still trusted.
    pub fn with_promoted_authority(
        mut self,
        names: &[String],
        now: OffsetDateTime,
        lifetimes: Lifetimes,
    ) -> Result<Self, rcgen::Error> {
        if let Some(next) = self.next.take() {
            self.old = std::mem::replace(&mut self.authority, next).certificate;
        }
        self.with_new_leaf(names, now, lifetimes)
    }

    /// Last step: only the issuing authority is trusted.
    #[must_use]
    pub fn without_old_authority(mut self) -> Self {
        self.old.clear();
        self
    }
}
