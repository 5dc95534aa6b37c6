//! What to do about the certificates that there are. Pure: the time is an argument.
//!
//! A certificate is renewed after two thirds of its life. An authority is replaced in steps, each of which is left to settle, so that
//! whatever certificate a replica still serves and whatever bundle an API server still has, they fit: the next authority is announced
//! (both are trusted), then it issues (both are trusted), then the old one goes.

use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::issue::{Lifetimes, SKEW};
use crate::material::{Authority, Material};

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing before this time.
    Keep(OffsetDateTime),
    /// Issue a new certificate for the server by the same authority.
    Renew(&'static str),
    /// Trust another authority, too.
    Announce(&'static str),
    /// Issue by the authority that was announced.
    Promote,
    /// Trust only the authority that issues.
    Settle,
    /// Issue everything anew.
    Replace(&'static str),
}

/// What to do about `material`, for a server with `names`.
pub fn plan(material: Option<&Material>, names: &[String], now: OffsetDateTime, lifetimes: Lifetimes) -> Plan {
    let Some(material) = material else { return Plan::Replace("there is none") };
    let Some(authority) = certificate(&material.authority) else {
        return Plan::Replace("the authority is unreadable, or its key is another's");
    };
    if authority.ends <= now {
        return Plan::Replace("the authority has ended");
    }
    let leaf = match leaf(material, &authority, names) {
        Ok(leaf) => leaf,
        Err(why) => return Plan::Renew(why),
    };
    if let Some(next) = &material.next {
        let Some(next) = certificate(next) else {
            return Plan::Announce("the authority that was announced is unreadable");
        };
        let due = next.issued + lifetimes.settle();
        return if due <= now { Plan::Promote } else { Plan::Keep(due) };
    }
    if leaf.due() <= now {
        return Plan::Renew("the server's certificate is past two thirds of its life");
    }
    let mut next = leaf.due();
    if !material.old.is_empty() {
        let due = leaf.issued + lifetimes.settle();
        if due <= now {
            return Plan::Settle;
        }
        next = next.min(due);
    } else if authority.due() <= now {
        return Plan::Announce("the authority is past two thirds of its life");
    }
    Plan::Keep(next.min(authority.due().max(now + lifetimes.settle())))
}

/// When `material`'s server certificate ends, and when its authority does.
pub fn ends(material: &Material) -> (Option<OffsetDateTime>, Option<OffsetDateTime>) {
    (read(&material.leaf).map(|c| c.ends), read(&material.authority.certificate).map(|c| c.ends))
}

/// When the certificate in `pem` ends.
pub fn end(pem: &str) -> Option<OffsetDateTime> {
    read(pem).map(|certificate| certificate.ends)
}

/// Of a certificate, what matters here.
struct Certificate {
    issued: OffsetDateTime,
    ends: OffsetDateTime,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    key: Vec<u8>,
    names: Vec<String>,
}

impl Certificate {
    /// Two thirds into its life.
    fn due(&self) -> OffsetDateTime {
        self.issued + (self.ends - self.issued) * 2 / 3
    }
}

fn read(pem: &str) -> Option<Certificate> {
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
        ends: parsed.validity().not_after.to_datetime(),
        subject: parsed.subject().as_raw().to_vec(),
        issuer: parsed.issuer().as_raw().to_vec(),
        key: parsed.public_key().raw.to_vec(),
        names: names.collect(),
    })
}

/// Whether `key` (PEM) is the key of `certificate`.
fn fits(certificate: &Certificate, key: &str) -> bool {
    KeyPair::from_pem(key).is_ok_and(|key| key.subject_public_key_info() == certificate.key)
}

fn certificate(authority: &Authority) -> Option<Certificate> {
    read(&authority.certificate).filter(|certificate| fits(certificate, &authority.key))
}

/// The server's certificate, if it is of use.
fn leaf(material: &Material, authority: &Certificate, names: &[String]) -> Result<Certificate, &'static str> {
    let leaf = read(&material.leaf).ok_or("the server's certificate is unreadable")?;
    if !fits(&leaf, &material.leaf_key) {
        return Err("the server's key is unreadable, or another's");
    }
    if leaf.issuer != authority.subject {
        return Err("the server's certificate is of another authority");
    }
    if !names.iter().all(|name| leaf.names.contains(name)) {
        return Err("the server's certificate lacks a name");
    }
    Ok(leaf)
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;
    use crate::issue::all;

    type Change = fn(&mut Material, &Material);

    const LIVES: Lifetimes = Lifetimes { authority: Duration::days(90), leaf: Duration::days(30) };

    fn names() -> Vec<String> {
        vec!["operator-webhook.knative-operator.svc".to_owned()]
    }

    fn start() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
    }

    fn of(material: &Material, now: OffsetDateTime) -> Plan {
        plan(Some(material), &names(), now, LIVES)
    }

    #[test]
    fn certificates_are_kept_until_two_thirds_of_their_life() {
        let material = all(&names(), start(), LIVES).unwrap();
        assert_eq!(of(&material, start()), Plan::Keep(start() + Duration::days(20)));
        // Another clock that is a few minutes behind.
        assert_eq!(of(&material, start() - SKEW), Plan::Keep(start() + Duration::days(20)));
        assert_eq!(
            of(&material, start() + Duration::days(20)),
            Plan::Renew("the server's certificate is past two thirds of its life")
        );
        assert_eq!(of(&material, start() + Duration::days(91)), Plan::Replace("the authority has ended"));
    }

    #[test]
    fn an_authority_is_replaced_in_steps_that_overlap() {
        let mut now = start() + Duration::days(60);
        let old = all(&names(), start(), LIVES).unwrap().renewed(&names(), now, LIVES).unwrap();
        assert_eq!(of(&old, now), Plan::Announce("the authority is past two thirds of its life"));
        let announced = old.clone().announced(now, LIVES).unwrap();
        assert_eq!(of(&announced, now), Plan::Keep(now + LIVES.settle()));
        assert_eq!(announced.bundle().matches("BEGIN").count(), 2);
        assert!(announced.bundle().starts_with(&old.authority.certificate));
        now += LIVES.settle();
        assert_eq!(of(&announced, now), Plan::Promote);
        let promoted = announced.clone().promoted(&names(), now, LIVES).unwrap();
        // Both bundles have both.
        assert!(
            promoted.bundle().contains(&old.authority.certificate)
                && announced.bundle().contains(&promoted.authority.certificate)
        );
        assert_eq!(of(&promoted, now), Plan::Keep(now + LIVES.settle()));
        now += LIVES.settle();
        assert_eq!(of(&promoted, now), Plan::Settle);
        let settled = promoted.clone().settled();
        assert_eq!(settled.bundle(), promoted.authority.certificate);
        assert!(matches!(of(&settled, now), Plan::Keep(_)));
    }

    #[test]
    fn short_lives_are_possible() {
        let lives = Lifetimes { authority: Duration::seconds(30), leaf: Duration::seconds(6) };
        let material = all(&names(), start(), lives).unwrap();
        assert_eq!(plan(Some(&material), &names(), start(), lives), Plan::Keep(start() + Duration::seconds(4)));
        assert!(matches!(plan(Some(&material), &names(), start() + Duration::seconds(4), lives), Plan::Renew(_)));
    }

    #[test]
    fn rubbish_and_strangers_are_replaced() {
        let good = all(&names(), start(), LIVES).unwrap();
        let other = all(&names(), start(), LIVES).unwrap();
        assert!(matches!(plan(None, &names(), start(), LIVES), Plan::Replace(_)));
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
            assert_eq!(matches!(planned, Plan::Replace(_)), whole, "{planned:?}");
            assert_eq!(matches!(planned, Plan::Renew(_)), !whole, "{planned:?}");
        }
        let planned = plan(Some(&good), &["other.svc".to_owned()], start(), LIVES);
        assert_eq!(planned, Plan::Renew("the server's certificate lacks a name"));
        let mut announced = good.announced(start(), LIVES).unwrap();
        announced.next.as_mut().unwrap().key.clear();
        assert!(matches!(of(&announced, start()), Plan::Announce(_)));
    }

    #[test]
    fn keys_are_not_printed() {
        let material = all(&names(), start(), LIVES).unwrap().announced(start(), LIVES).unwrap();
        assert!(!format!("{material:?}").contains("PRIVATE KEY"));
    }
}
