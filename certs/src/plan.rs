//! What to do about the certificates that there are. Pure: the time is an argument.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::issue::Material;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing before this time.
    Keep(OffsetDateTime),
    /// Issue a new certificate for the server by the same authority.
    RenewLeaf(&'static str),
    /// Issue everything anew.
    Replace(&'static str),
}

/// What to do about `material`, for a server with `names`. A certificate is renewed after two thirds of its life.
pub fn plan(material: Option<&Material>, names: &[String], now: OffsetDateTime) -> Plan {
    let Some(material) = material else { return Plan::Replace("there is none") };
    let Some(authority) = der(&material.authority) else { return Plan::Replace("the authority's certificate is unreadable") };
    let Ok((_, authority)) = X509Certificate::from_der(&authority) else {
        return Plan::Replace("the authority's certificate is unreadable");
    };
    if PrivateKeyDer::from_pem_slice(material.authority_key.as_bytes()).is_err() {
        return Plan::Replace("the authority's key is unreadable");
    }
    let Some(authority_due) = due(&authority) else { return Plan::Replace("the authority's validity is unreadable") };
    if authority_due <= now {
        return Plan::Replace("the authority is past two thirds of its life");
    }
    let Some(leaf) = der(&material.leaf) else { return Plan::RenewLeaf("the server's certificate is unreadable") };
    let Ok((_, leaf)) = X509Certificate::from_der(&leaf) else { return Plan::RenewLeaf("the server's certificate is unreadable") };
    if PrivateKeyDer::from_pem_slice(material.leaf_key.as_bytes()).is_err() {
        return Plan::RenewLeaf("the server's key is unreadable");
    }
    if leaf.issuer() != authority.subject() {
        return Plan::RenewLeaf("the server's certificate is of another authority");
    }
    if !names.iter().all(|name| covers(&leaf, name)) {
        return Plan::RenewLeaf("the server's certificate lacks a name");
    }
    match due(&leaf) {
        Some(leaf_due) if leaf_due > now => Plan::Keep(leaf_due.min(authority_due)),
        _ => Plan::RenewLeaf("the server's certificate is past two thirds of its life"),
    }
}

/// When `material`'s server certificate ends.
pub fn leaf_ends(material: &Material) -> Option<OffsetDateTime> {
    let leaf = der(&material.leaf)?;
    let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
    Some(leaf.validity().not_after.to_datetime())
}

fn der(pem: &str) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).ok()
}

/// Two thirds into a certificate's life.
fn due(certificate: &X509Certificate<'_>) -> Option<OffsetDateTime> {
    let (from, to) = (certificate.validity().not_before.to_datetime(), certificate.validity().not_after.to_datetime());
    from.checked_add((to - from) * 2 / 3)
}

fn covers(certificate: &X509Certificate<'_>, name: &str) -> bool {
    use x509_parser::extensions::GeneralName::DNSName;
    let names = certificate.subject_alternative_name().ok().flatten();
    names.is_some_and(|n| n.value.general_names.iter().any(|n| matches!(n, DNSName(have) if *have == name)))
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;
    use crate::issue::{Lifetimes, all, leaf};

    const LIVES: Lifetimes = Lifetimes { authority: Duration::days(90), leaf: Duration::days(30) };

    fn names() -> Vec<String> {
        vec!["operator-webhook.knative-operator.svc".to_owned()]
    }

    #[test]
    fn certificates_are_kept_until_two_thirds_of_their_life() {
        let start = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let material = all(&names(), start, LIVES).unwrap();
        let Plan::Keep(next) = plan(Some(&material), &names(), start) else { panic!("not kept") };
        assert!((Duration::days(19)..=Duration::days(20)).contains(&(next - start)), "{next}");
        assert_eq!(
            plan(Some(&material), &names(), start + Duration::days(21)),
            Plan::RenewLeaf("the server's certificate is past two thirds of its life")
        );
        assert_eq!(
            plan(Some(&material), &names(), start + Duration::days(61)),
            Plan::Replace("the authority is past two thirds of its life")
        );
    }

    #[test]
    fn rubbish_and_strangers_are_replaced() {
        let start = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let good = all(&names(), start, LIVES).unwrap();
        assert!(matches!(plan(None, &names(), start), Plan::Replace(_)));
        for (change, whole) in [
            ((|m| m.authority = "rubbish".into()) as fn(&mut Material), true),
            (|m| m.authority_key.clear(), true),
            (|m| m.leaf = "rubbish".into(), false),
            (|m| m.leaf_key.clear(), false),
        ] {
            let mut bad = good.clone();
            change(&mut bad);
            let planned = plan(Some(&bad), &names(), start);
            assert_eq!(matches!(planned, Plan::Replace(_)), whole, "{planned:?}");
            assert!(!matches!(planned, Plan::Keep(_)));
        }
        assert_eq!(plan(Some(&good), &["other.svc".to_owned()], start), Plan::RenewLeaf("the server's certificate lacks a name"));
        let renewed = leaf(&good.authority, &good.authority_key, &names(), start + Duration::days(21), LIVES).unwrap();
        assert!(matches!(plan(Some(&renewed), &names(), start + Duration::days(21)), Plan::Keep(_)));
    }

    #[test]
    fn keys_are_not_printed() {
        let material = all(&names(), OffsetDateTime::UNIX_EPOCH, LIVES).unwrap();
        assert!(!format!("{material:?}").contains("PRIVATE KEY"));
    }
}
