//! Issues an authority and the certificate of a server (ECDSA P-256). Pure: the time is an argument.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use time::{Duration, OffsetDateTime};

/// Everything a webhook needs, in PEM. The keys never leave the Secret and the process: `Debug` leaves them out.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// Certificate of the authority: the caBundle.
    pub authority: String,
    /// Key of the authority.
    pub authority_key: String,
    /// Certificate of the server.
    pub leaf: String,
    /// Key of the server.
    pub leaf_key: String,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("authority", &self.authority).field("leaf", &self.leaf).finish_non_exhaustive()
    }
}

/// How long certificates live.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Life of the authority.
    pub authority: Duration,
    /// Life of the server's certificate.
    pub leaf: Duration,
}

/// Clocks may differ: certificates are valid from this long ago.
const SKEW: Duration = Duration::minutes(5);

/// A new authority and a certificate for a server with `names`.
pub fn all(names: &[String], now: OffsetDateTime, lifetimes: Lifetimes) -> Result<Material, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "knative-operator webhook authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = now - SKEW;
    params.not_after = now + lifetimes.authority;
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    leaf(&certificate.pem(), &key.serialize_pem(), names, now, lifetimes)
}

/// A new certificate for a server with `names`, by the authority that there is.
pub fn leaf(
    authority: &str,
    authority_key: &str,
    names: &[String],
    now: OffsetDateTime,
    lifetimes: Lifetimes,
) -> Result<Material, rcgen::Error> {
    let issuer = Issuer::from_ca_cert_pem(authority, KeyPair::from_pem(authority_key)?)?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, names.first().cloned().unwrap_or_default());
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.not_before = now - SKEW;
    params.not_after = now + lifetimes.leaf;
    let key = KeyPair::generate()?;
    Ok(Material {
        authority: authority.to_owned(),
        authority_key: authority_key.to_owned(),
        leaf: params.signed_by(&key, &issuer)?.pem(),
        leaf_key: key.serialize_pem(),
    })
}
