//! Kubeconfig files.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::pki::Issued;

/// How a kubeconfig's user proves who it is.
pub enum User<'a> {
    /// With a client certificate.
    Certificate(&'a Issued),
    /// With a bearer token in a file.
    TokenFile(&'a str),
    /// With a bearer token.
    Token(&'a str),
}

/// A kubeconfig for `server`, with `namespace` as its context's.
pub fn kubeconfig(name: &str, server: &str, authority: &str, namespace: &str, user: &User<'_>) -> String {
    let user: Value = match user {
        User::Certificate(issued) => json!({
            "client-certificate-data": BASE64_STANDARD.encode(&issued.certificate),
            "client-key-data": BASE64_STANDARD.encode(&issued.key),
        }),
        User::TokenFile(path) => json!({"tokenFile": path}),
        User::Token(token) => json!({"token": token}),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": BASE64_STANDARD.encode(authority)}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
    })
    .to_string()
}
