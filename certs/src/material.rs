//! Certificates and keys of the webhook.

/// An authority in PEM. The key stays in the Secret and the process; `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// Its certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Certificates and keys of the webhook in PEM. The keys stay in the Secret and the process;
/// `Debug` omits them.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// The issuing authority.
    pub authority: Authority,
    /// The next authority, which is trusted already.
    pub next: Option<Authority>,
    /// Certificate of the previous authority, if it is still trusted; else empty.
    pub old: String,
    /// Server certificate.
    pub leaf: String,
    /// Key of the server certificate.
    pub leaf_key: String,
}

impl Material {
    /// The CA bundle (`caBundle`), the issuing authority first.
    pub fn bundle(&self) -> String {
        let next = self.next.as_ref().map_or("", |next| &next.certificate);
        format!("{}{next}{}", self.authority.certificate, self.old)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Material");
        debug
            .field("authority", &self.authority)
            .field("next", &self.next)
            .field("old", &self.old)
            .field("leaf", &self.leaf);
        debug.finish_non_exhaustive()
    }
}
