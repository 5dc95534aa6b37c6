//! Everything that a webhook needs to prove who it is.

/// An authority, in PEM. The key never leaves the Secret and the process: `Debug` leaves it out.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// Its certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Everything that a webhook needs, in PEM. The keys never leave the Secret and the process: `Debug` leaves them out.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// The authority that issues.
    pub authority: Authority,
    /// The one that will issue soon, and is trusted already.
    pub next: Option<Authority>,
    /// The certificate of the one that issued before, and is still trusted; empty if none is.
    pub old: String,
    /// Certificate of the server.
    pub leaf: String,
    /// Key of the server.
    pub leaf_key: String,
}

impl Material {
    /// What the API server trusts (`caBundle`): the authority that issues first.
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
        let mut shown = f.debug_struct("Material");
        shown
            .field("authority", &self.authority)
            .field("next", &self.next)
            .field("old", &self.old)
            .field("leaf", &self.leaf);
        shown.finish_non_exhaustive()
    }
}
