//! When certificates are valid, by clocks that differ. Pure: the time is an argument.
//!
//! A certificate is valid from a day before its issue, so clocks may differ by hours. For larger
//! differences, a new certificate starts no later than the one that it replaces. If that one is not
//! valid yet, the new one ends no earlier, since the clock that says so may itself be behind. So
//! replicas agree after a few certificates, instead of replacing those of each other.

use rustls::pki_types::{CertificateDer, pem::PemObject};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Difference of clocks that each certificate tolerates: it is valid from this time before its
/// issue.
pub const SKEW: Duration = Duration::DAY;

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start (`notBefore`), at least [`SKEW`] before the issue.
    pub starts: OffsetDateTime,
    /// End (`notAfter`).
    pub expires: OffsetDateTime,
}

impl Validity {
    /// Validity of a certificate that is issued at `now` and replaces one that is valid as
    /// `previous`.
    pub fn of_new(now: OffsetDateTime, lifetime: Duration, previous: Option<Self>) -> Self {
        let (starts, expires) = (now - SKEW, now + lifetime);
        match previous {
            Some(previous) if previous.starts > now => Self { starts, expires: expires.max(previous.expires) },
            Some(previous) => Self { starts: starts.min(previous.starts), expires },
            None => Self { starts, expires },
        }
    }

    /// Validity of the first certificate in `pem`.
    pub fn of(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        Some(Self::from(certificate.validity()))
    }

    /// Whether the certificate is valid at `now`.
    pub fn contains(&self, now: OffsetDateTime) -> bool {
        (self.starts..self.expires).contains(&now)
    }

    /// Time at which a certificate with `lifetime` was issued. Its start doesn't have that time.
    pub fn issued(&self, lifetime: Duration) -> OffsetDateTime {
        self.expires - lifetime
    }

    /// Renewal time of a certificate with `lifetime`: a third of it is left.
    pub fn renewal_time(&self, lifetime: Duration) -> OffsetDateTime {
        self.expires - lifetime / 3i32
    }
}

impl From<&x509_parser::certificate::Validity> for Validity {
    fn from(parsed: &x509_parser::certificate::Validity) -> Self {
        Self { starts: parsed.not_before.to_datetime(), expires: parsed.not_after.to_datetime() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::days(30);

    #[test]
    fn times_count_from_the_issue() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let mut validity = None;
        // The start stays where it was; nothing else depends on it.
        for days in [0, 20, 40] {
            let issued = now + Duration::days(days);
            let new = Validity::of_new(issued, LIFETIME, validity);
            assert_eq!(new, Validity { starts: now - SKEW, expires: issued + LIFETIME });
            assert_eq!(new.issued(LIFETIME), issued);
            assert_eq!(new.renewal_time(LIFETIME), issued + Duration::days(20));
            validity = Some(new);
        }
    }

    #[test]
    fn new_certificate_is_valid_by_the_clock_of_the_previous_issuer() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        for days in [-1000, -20, -1, 0, 1, 2, 20, 1000] {
            let other = now + Duration::days(days);
            let previous = Validity::of_new(other, LIFETIME, None);
            let new = Validity::of_new(now, LIFETIME, Some(previous));
            assert!(new.contains(now) && new.starts <= other, "{days}");
            // If the other clock is ahead: a clock that is behind may be at fault.
            assert!(days <= 1 || new.contains(other), "{days}");
        }
    }
}
