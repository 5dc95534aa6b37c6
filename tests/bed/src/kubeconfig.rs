//! Kubeconfig files.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::pki::Issued;

/// Authentication of a kubeconfig's user.
pub enum User<'a> {
    /// A client certificate.
    Certificate(&'a Issued),
    /// A bearer token in a file.
    TokenFile(&'a str),
    /// A bearer token.
    Token(&'a str),
}

/// A kubeconfig for `server` with the default namespace `namespace`.
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
