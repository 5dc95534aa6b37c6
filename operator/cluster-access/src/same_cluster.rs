//! Whether a cluster of a kubeconfig is that of a ClusterProfile. Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::config::Cluster;

use super::address;
use super::profile::Access;

/// Whether `cluster`, of a kubeconfig in a Secret, is that of `access`, for which nobody else can
/// answer.
pub fn is_cluster(access: &Access, cluster: &Cluster) -> bool {
    let url = cluster.server.as_deref().and_then(|url| address::server(url, true).ok());
    let is_same = url.is_some_and(|own| address::is_same(&own, &access.server));
    // The owner of a proxy could answer with a certificate of an authority of the ClusterProfile.
    let authority = cluster.certificate_authority_data.as_deref().and_then(|data| BASE64_STANDARD.decode(data).ok());
    let is_own = |given: &[u8]| authority.as_deref().is_some_and(|own| own.trim_ascii() == given.trim_ascii());
    let is_proxy_harmless = access.proxy.is_none() || access.authority.as_deref().is_some_and(is_own);
    is_same && !access.insecure && !access.has_other_name() && is_proxy_harmless
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::builtin::SecretSource;
    use super::super::profile::CredentialSource;
    use super::*;

    pub const OWN: &str = "https://prod.example:6443";

    pub fn access(server: &str) -> Access {
        Access {
            server: server.parse().unwrap(),
            authority: Some(b"authority\n".to_vec()),
            server_name: None,
            insecure: false,
            proxy: None,
            source: CredentialSource::Secret(SecretSource::token("p", "prod")),
        }
    }

    #[test]
    fn cluster_of_a_kubeconfig_is_that_of_the_profile_if_nobody_else_can_answer() {
        let of = |server: &str| Cluster {
            server: Some(server.to_owned()),
            certificate_authority_data: Some(BASE64_STANDARD.encode("authority")),
            ..Cluster::default()
        };
        let is_own = |access: &Access| is_cluster(access, &of(OWN));
        let proxy = || address::proxy("socks5://tenant.example").ok();
        assert!(is_own(&access(OWN)) && is_own(&Access { proxy: proxy(), ..access(OWN) }));
        assert!(is_cluster(&access(OWN), &of("https://PROD.example:6443/")));
        assert!(!is_cluster(&access(OWN), &of("prod.example:6443")) && !is_cluster(&access(OWN), &Cluster::default()));
        for other in [
            access("https://tenant.example:6443"),
            Access { server_name: Some("another".to_owned()), ..access(OWN) },
            Access { insecure: true, ..access(OWN) },
            Access { proxy: proxy(), authority: Some(b"tenant's".to_vec()), ..access(OWN) },
            Access { proxy: proxy(), authority: None, ..access(OWN) },
        ] {
            assert!(!is_own(&other), "{other:?}");
        }
    }
}
