//! Serves the certificate of a Secret that another process manages.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use knative_operator_runtime::error_text;
use knative_operator_runtime::watch::watch;
use kube::runtime::watcher;
use kube::{Api, Client};

use crate::resolver::CertificateResolver;
use crate::secret;

/// Sets the certificate of `resolver` to that of Secret `name` in `namespace` at each change, until
/// the task ends.
pub async fn follow_secret(client: &Client, namespace: &str, name: &str, resolver: &CertificateResolver) {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watch(secrets, config)
        .for_each(|event| {
            match event {
                Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret)) => set(resolver, &secret),
                Ok(_) => {}
                Err(error) => tracing::warn!(name, error = error_text(&error), "watch interrupted"),
            }
            std::future::ready(())
        })
        .await;
}

fn set(resolver: &CertificateResolver, stored: &Secret) {
    let (Some(chain), Some(key)) = (secret::field(stored, secret::LEAF), secret::field(stored, secret::LEAF_KEY))
    else {
        return;
    };
    match resolver.set(&chain, &key) {
        Ok(true) => tracing::info!("serving the current certificate"),
        Ok(false) => {}
        Err(error) => tracing::warn!(error = error_text(&error), "cannot serve the stored certificate"),
    }
}
