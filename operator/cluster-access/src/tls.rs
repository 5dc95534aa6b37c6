//! TLS settings of one spoke.

use kube::Config;
use kube::client::ConfigExt;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use secrecy::{ExposeSecret, SecretString};

use super::error::{AccessError, Reason};
use super::exec;
use super::profile::Access;

/// TLS settings for the spoke of `access` with the client certificate `identity`, and the name that
/// its certificate is for, if not its host.
pub fn config(
    access: &Access,
    identity: Option<&(String, SecretString)>,
) -> Result<(ClientConfig, Option<ServerName<'static>>), AccessError> {
    let failed = |why: String| {
        AccessError::new(Reason::RemoteClientCreationFailed, format!("no client for {}: {why}", access.server))
    };
    let mut config = Config::new(access.server.clone());
    config.accept_invalid_certs = access.insecure;
    if let Some(authority) = &access.authority {
        let certificates: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(authority)
            .map(|c| c.map(|c| c.to_vec()))
            .collect::<Result<_, _>>()
            .map_err(|e| failed(format!("certificate-authority-data has no PEM certificates: {e}")))?;
        if certificates.is_empty() {
            return Err(failed("certificate-authority-data has no PEM certificate".to_owned()));
        }
        config.root_cert = Some(certificates);
    }
    if let Some((certificate, key)) = identity {
        config.auth_info.client_certificate_data = Some(exec::base64(certificate));
        config.auth_info.client_key_data = Some(SecretString::from(exec::base64(key.expose_secret())));
    }
    let mut tls = config.rustls_client_config().map_err(|e| failed(knative_operator_client::error_text(&e)))?;
    // No session cache: connections last for days, and a cache costs memory for every spoke.
    tls.resumption = Resumption::disabled();
    let name = access
        .server_name
        .clone()
        .map(|name| ServerName::try_from(name.clone()).map_err(|e| failed(format!("tls-server-name \"{name}\": {e}"))));
    Ok((tls, name.transpose()?))
}
