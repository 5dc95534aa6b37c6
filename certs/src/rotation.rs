//! Decides which certificates are due. Pure: the time is an argument.
//!
//! A certificate is renewed after two thirds of its lifetime, and at once if it is not valid by the
//! clock of the replica. An authority is rotated in steps with a pause after each, so that every
//! certificate that a replica still serves matches every bundle that an API server still has: the
//! next authority is announced (both are trusted), then it issues (both are trusted), then the old
//! one is removed. If the issuing authority is not valid, the next one issues without a pause.

use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::issue::Lifetimes;
use crate::material::{Authority, Material};
use crate::validity::Validity;

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
    let next = material.next.as_ref().and_then(certificate).filter(|next| next.validity.contains(now));
    if !authority.validity.contains(now) {
        // API servers with the same time refuse all certificates of this authority.
        return match next {
            Some(_) => RotationStep::Promote,
            None if authority.validity.starts > now => RotationStep::Announce("the authority is not valid yet"),
            None => RotationStep::Announce("the authority has expired"),
        };
    }
    let leaf = match leaf(material, &authority, names) {
        Ok(leaf) => leaf.validity,
        Err(why) => return RotationStep::Renew(why),
    };
    if leaf.starts > now {
        return RotationStep::Renew("the server certificate is not valid yet");
    }
    if next.is_none() && material.next.is_some() {
        return RotationStep::Announce("the announced authority is invalid, has expired, or is not valid yet");
    }
    let pause = lifetimes.step_duration();
    let promotion = next.map(|next| next.validity.issued(lifetimes.authority) + pause);
    if promotion.is_some_and(|due| due <= now) {
        return RotationStep::Promote;
    }
    let renewal = leaf.renewal_time(lifetimes.leaf);
    if renewal <= now {
        return RotationStep::Renew("the server certificate is past two thirds of its lifetime");
    }
    if let Some(promotion) = promotion {
        return RotationStep::Keep(promotion.min(renewal).min(authority.validity.expires));
    }
    let removal = (!material.old.is_empty()).then(|| leaf.issued(lifetimes.leaf) + pause);
    if removal.is_some_and(|due| due <= now) {
        return RotationStep::Finish;
    }
    let rotation = authority.validity.renewal_time(lifetimes.authority);
    if rotation <= now {
        return RotationStep::Announce("the authority is past two thirds of its lifetime");
    }
    RotationStep::Keep(removal.unwrap_or(renewal).min(renewal).min(rotation))
}

/// The relevant fields of a certificate.
struct Certificate {
    validity: Validity,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    key: Vec<u8>,
    names: Vec<String>,
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
        validity: Validity::from(parsed.validity()),
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

/// The server certificate, if it has `names` and `authority` issued it.
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
    use crate::issue::{self, issue_all};
    use crate::validity::SKEW;

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
        // A clock that is a day behind.
        assert_eq!(of(&material, start() - SKEW), RotationStep::Keep(start() + Duration::days(20)));
        assert_eq!(
            of(&material, start() + Duration::days(20)),
            RotationStep::Renew("the server certificate is past two thirds of its lifetime")
        );
    }

    #[test]
    fn authority_that_is_not_valid_is_replaced_without_pause() {
        let material = issue_all(&names(), start(), LIVES).unwrap();
        for (now, why) in [
            (start() - SKEW - Duration::SECOND, "the authority is not valid yet"),
            (start() - Duration::days(1000), "the authority is not valid yet"),
            (start() + LIVES.authority, "the authority has expired"),
            (start() + Duration::days(1000), "the authority has expired"),
        ] {
            assert_eq!(of(&material, now), RotationStep::Announce(why));
            let announced = material.clone().with_next_authority(now, LIVES).unwrap();
            assert_eq!(of(&announced, now), RotationStep::Promote);
            let promoted = announced.with_promoted_authority(&names(), now, LIVES).unwrap();
            assert!(matches!(of(&promoted, now), RotationStep::Keep(_)), "{why}");
            // Replicas that still serve the previous certificate are trusted.
            assert_eq!(promoted.old, material.authority.certificate);
        }
    }

    #[test]
    fn certificate_of_a_clock_that_is_ahead_is_renewed_and_valid_by_both_clocks() {
        let ahead = start() + Duration::days(40);
        let mut material = issue_all(&names(), start(), LIVES).unwrap();
        let validity = Validity::of_new(ahead, LIVES.leaf, None);
        (material.leaf, material.leaf_key) = issue::leaf(&material.authority, &names(), validity).unwrap();
        assert_eq!(of(&material, start()), RotationStep::Renew("the server certificate is not valid yet"));
        let renewed = material.with_new_leaf(&names(), start(), LIVES).unwrap();
        for now in [start(), ahead] {
            assert!(matches!(of(&renewed, now), RotationStep::Keep(_)), "{now}");
        }
    }

    #[test]
    fn certificate_is_renewed_while_an_authority_waits_for_its_turn() {
        // The clock of the replica that announced it is ahead.
        let ahead = start() + Duration::days(50);
        let material = issue_all(&names(), start(), LIVES).unwrap().with_next_authority(ahead, LIVES).unwrap();
        assert_eq!(of(&material, start()), RotationStep::Keep(start() + Duration::days(20)));
        assert!(matches!(of(&material, start() + Duration::days(20)), RotationStep::Renew(_)));
    }

    /// The turn of a replica, as the manager takes it; returns whether it changes `material`.
    fn turn(material: &mut Option<Material>, now: OffsetDateTime) -> bool {
        let step = next_step(material.as_ref(), &names(), now, LIVES);
        let changed = match (step, material.take()) {
            (RotationStep::Keep(_), kept) => {
                *material = kept;
                return false;
            }
            (RotationStep::Renew(_), Some(m)) => m.with_new_leaf(&names(), now, LIVES),
            (RotationStep::Announce(_), Some(m)) => m.with_next_authority(now, LIVES),
            (RotationStep::Promote, Some(m)) => m.with_promoted_authority(&names(), now, LIVES),
            (RotationStep::Finish, Some(m)) => Ok(m.without_old_authority()),
            (RotationStep::Replace(_), _) | (_, None) => issue_all(&names(), now, LIVES),
        };
        *material = Some(changed.unwrap());
        true
    }

    #[test]
    fn replicas_with_different_clocks_agree() {
        let offsets = [-1000, -40, -2, 0, 2, 40, 1000].map(Duration::days);
        for (first, second) in offsets.iter().flat_map(|first| offsets.map(|second| (*first, second))) {
            let clocks = [first, second, Duration::ZERO];
            let (mut material, mut now) = (None, start());
            // The installation, a renewal of the certificate, and a rotation of the authority.
            for pause in [0, 21, 61].map(Duration::days) {
                now += pause;
                let mut last_change = 0;
                for round in 1..=9 {
                    for clock in clocks {
                        if turn(&mut material, now + clock) {
                            last_change = round;
                        }
                    }
                    now += Duration::minutes(2);
                }
                assert!(last_change <= 5, "{clocks:?}: still changed in round {last_change} after {pause}");
                let material = material.as_ref().unwrap();
                let pems = [&material.leaf, &material.authority.certificate];
                let validities = pems.map(|pem| Validity::of(pem).unwrap());
                for clock in clocks {
                    let is_valid = validities.iter().all(|validity| validity.contains(now + clock));
                    assert!(is_valid, "{clocks:?} after {pause}: {clock}");
                }
            }
        }
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
