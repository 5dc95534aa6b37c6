//! Decides which certificates are due. Pure: the time is an argument.
//!
//! A certificate is renewed after two thirds of its lifetime. An authority is rotated in steps with
//! a pause after each, so that every certificate that a replica still serves matches every bundle
//! that an API server still has: the next authority is announced (both are trusted), then it issues
//! (both are trusted), then the old one is removed.

use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::issue::{Lifetimes, SKEW};
use crate::material::{Authority, Material};

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationStep {
    /// Nothing until this time.
    Keep(OffsetDateTime),
    /// Issue a server certificate by the same authority.
    Renew(&'static str),
    /// Trust another authority, too.
    Announce(&'static str),
    /// Issue by the announced authority.
    Promote,
    /// Trust the issuing authority only.
    Finish,
    /// Issue a new authority and certificate.
    Replace(&'static str),
}

/// The next step for `material` of a server with `names`.
pub fn next_step(
    material: Option<&Material>,
    names: &[String],
    now: OffsetDateTime,
    lifetimes: Lifetimes,
) -> RotationStep {
    let Some(material) = material else { return RotationStep::Replace("there are no certificates") };
    let Some(authority) = certificate(&material.authority) else {
        return RotationStep::Replace("the authority is invalid, or its key doesn't match");
    };
    if authority.expires <= now {
        return RotationStep::Replace("the authority has expired");
    }
    let leaf = match leaf(material, &authority, names) {
        Ok(leaf) => leaf,
        Err(why) => return RotationStep::Renew(why),
    };
    if let Some(next) = &material.next {
        let Some(next) = certificate(next) else {
            return RotationStep::Announce("the announced authority is invalid");
        };
        let due = next.issued + lifetimes.step_duration();
        return if due <= now { RotationStep::Promote } else { RotationStep::Keep(due) };
    }
    if leaf.renewal_time() <= now {
        return RotationStep::Renew("the server certificate is past two thirds of its lifetime");
    }
    let mut next = leaf.renewal_time();
    if !material.old.is_empty() {
        let due = leaf.issued + lifetimes.step_duration();
        if due <= now {
            return RotationStep::Finish;
        }
        next = next.min(due);
    } else if authority.renewal_time() <= now {
        return RotationStep::Announce("the authority is past two thirds of its lifetime");
    }
    RotationStep::Keep(next.min(authority.renewal_time().max(now + lifetimes.step_duration())))
}

/// Expiry of the server certificate in `material`, and of its authority.
pub fn expiries(material: &Material) -> (Option<OffsetDateTime>, Option<OffsetDateTime>) {
    (parse(&material.leaf).map(|c| c.expires), parse(&material.authority.certificate).map(|c| c.expires))
}

/// Expiry of the certificate in `pem`.
pub fn expiry(pem: &str) -> Option<OffsetDateTime> {
    parse(pem).map(|certificate| certificate.expires)
}

/// The relevant fields of a certificate.
struct Certificate {
    issued: OffsetDateTime,
    expires: OffsetDateTime,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    key: Vec<u8>,
    names: Vec<String>,
}

impl Certificate {
    /// Renewal time: two thirds of the lifetime.
    fn renewal_time(&self) -> OffsetDateTime {
        self.issued + (self.expires - self.issued) * 2 / 3
    }
}

fn parse(pem: &str) -> Option<Certificate> {
    use x509_parser::extensions::GeneralName::DNSName;
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, parsed) = X509Certificate::from_der(&der).ok()?;
    let alternatives = parsed.subject_alternative_name().ok().flatten().map(|san| &san.value.general_names);
    let names = alternatives.into_iter().flatten().filter_map(|name| match name {
        DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    Some(Certificate {
        issued: parsed.validity().not_before.to_datetime() + SKEW,
        expires: parsed.validity().not_after.to_datetime(),
        subject: parsed.subject().as_raw().to_vec(),
        issuer: parsed.issuer().as_raw().to_vec(),
        key: parsed.public_key().raw.to_vec(),
        names: names.collect(),
    })
}

/// Whether `key` (PEM) is the key of `certificate`.
fn matches_key(certificate: &Certificate, key: &str) -> bool {
    KeyPair::from_pem(key).is_ok_and(|key| key.subject_public_key_info() == certificate.key)
}

fn certificate(authority: &Authority) -> Option<Certificate> {
    parse(&authority.certificate).filter(|certificate| matches_key(certificate, &authority.key))
}

/// The server certificate, if it is valid for `names`.
fn leaf(material: &Material, authority: &Certificate, names: &[String]) -> Result<Certificate, &'static str> {
    let leaf = parse(&material.leaf).ok_or("the server certificate is invalid")?;
    if !matches_key(&leaf, &material.leaf_key) {
        return Err("the server key is invalid, or doesn't match");
    }
    if leaf.issuer != authority.subject {
        return Err("another authority issued the server certificate");
    }
    if !names.iter().all(|name| leaf.names.contains(name)) {
        return Err("the server certificate lacks a name");
    }
    Ok(leaf)
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;
    use crate::issue::issue_all;

    type Change = fn(&mut Material, &Material);

    const LIVES: Lifetimes = Lifetimes { authority: Duration::days(90), leaf: Duration::days(30) };

    fn names() -> Vec<String> {
        vec!["operator-webhook.knative-operator.svc".to_owned()]
    }

    fn start() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
    }

    fn of(material: &Material, now: OffsetDateTime) -> RotationStep {
        next_step(Some(material), &names(), now, LIVES)
    }

    #[test]
    fn certificates_are_kept_until_two_thirds_of_lifetime() {
        let material = issue_all(&names(), start(), LIVES).unwrap();
        assert_eq!(of(&material, start()), RotationStep::Keep(start() + Duration::days(20)));
        // A clock that is a few minutes behind.
        assert_eq!(of(&material, start() - SKEW), RotationStep::Keep(start() + Duration::days(20)));
        assert_eq!(
            of(&material, start() + Duration::days(20)),
            RotationStep::Renew("the server certificate is past two thirds of its lifetime")
        );
        assert_eq!(of(&material, start() + Duration::days(91)), RotationStep::Replace("the authority has expired"));
    }

    #[test]
    fn authority_is_rotated_in_overlapping_steps() {
        let mut now = start() + Duration::days(60);
        let old = issue_all(&names(), start(), LIVES).unwrap().with_new_leaf(&names(), now, LIVES).unwrap();
        assert_eq!(of(&old, now), RotationStep::Announce("the authority is past two thirds of its lifetime"));
        let with_next_authority = old.clone().with_next_authority(now, LIVES).unwrap();
        assert_eq!(of(&with_next_authority, now), RotationStep::Keep(now + LIVES.step_duration()));
        assert_eq!(with_next_authority.bundle().matches("BEGIN").count(), 2);
        assert!(with_next_authority.bundle().starts_with(&old.authority.certificate));
        now += LIVES.step_duration();
        assert_eq!(of(&with_next_authority, now), RotationStep::Promote);
        let with_promoted_authority =
            with_next_authority.clone().with_promoted_authority(&names(), now, LIVES).unwrap();
        // Both bundles have both authorities.
        assert!(
            with_promoted_authority.bundle().contains(&old.authority.certificate)
                && with_next_authority.bundle().contains(&with_promoted_authority.authority.certificate)
        );
        assert_eq!(of(&with_promoted_authority, now), RotationStep::Keep(now + LIVES.step_duration()));
        now += LIVES.step_duration();
        assert_eq!(of(&with_promoted_authority, now), RotationStep::Finish);
        let without_old_authority = with_promoted_authority.clone().without_old_authority();
        assert_eq!(without_old_authority.bundle(), with_promoted_authority.authority.certificate);
        assert!(matches!(of(&without_old_authority, now), RotationStep::Keep(_)));
    }

    #[test]
    fn short_lifetimes_are_possible() {
        let lives = Lifetimes { authority: Duration::seconds(30), leaf: Duration::seconds(6) };
        let material = issue_all(&names(), start(), lives).unwrap();
        assert_eq!(
            next_step(Some(&material), &names(), start(), lives),
            RotationStep::Keep(start() + Duration::seconds(4))
        );
        assert!(matches!(
            next_step(Some(&material), &names(), start() + Duration::seconds(4), lives),
            RotationStep::Renew(_)
        ));
    }

    #[test]
    fn invalid_and_foreign_certificates_are_replaced() {
        let good = issue_all(&names(), start(), LIVES).unwrap();
        let other = issue_all(&names(), start(), LIVES).unwrap();
        assert!(matches!(next_step(None, &names(), start(), LIVES), RotationStep::Replace(_)));
        let changes: [(Change, bool); 7] = [
            (|m, _| m.authority.certificate = "rubbish".into(), true),
            (|m, _| m.authority.key.clear(), true),
            (|m, o| m.authority.key.clone_from(&o.authority.key), true),
            (|m, _| m.leaf = "rubbish".into(), false),
            (|m, _| m.leaf_key.clear(), false),
            (|m, o| m.leaf_key.clone_from(&o.leaf_key), false),
            (|m, o| (m.leaf, m.leaf_key) = (o.leaf.clone(), o.leaf_key.clone()), false),
        ];
        for (change, whole) in changes {
            let mut bad = good.clone();
            change(&mut bad, &other);
            let planned = of(&bad, start());
            assert_eq!(matches!(planned, RotationStep::Replace(_)), whole, "{planned:?}");
            assert_eq!(matches!(planned, RotationStep::Renew(_)), !whole, "{planned:?}");
        }
        let planned = next_step(Some(&good), &["other.svc".to_owned()], start(), LIVES);
        assert_eq!(planned, RotationStep::Renew("the server certificate lacks a name"));
        let mut with_next_authority = good.with_next_authority(start(), LIVES).unwrap();
        with_next_authority.next.as_mut().unwrap().key.clear();
        assert!(matches!(of(&with_next_authority, start()), RotationStep::Announce(_)));
    }

    #[test]
    fn keys_are_not_printed() {
        let material = issue_all(&names(), start(), LIVES).unwrap().with_next_authority(start(), LIVES).unwrap();
        assert!(!format!("{material:?}").contains("PRIVATE KEY"));
    }
}
