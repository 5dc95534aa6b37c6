//! Digest of an applied object.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Digest of an applied object: the first 128 bits of SHA-256 over a format version and the
/// object's JSON with sorted keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u128);

impl Digest {
    /// Digest of an object, from its JSON with sorted keys.
    pub fn of(text: &str) -> Self {
        Self::hash(Sha256::new_with_prefix("1").chain_update(text))
    }

    /// Digest of an object with digest `self` whose owner reference is `owner`.
    #[must_use]
    pub fn owned(self, owner: &str) -> Self {
        Self::hash(Sha256::new_with_prefix("1").chain_update(self.0.to_be_bytes()).chain_update(owner))
    }

    /// Parses a stored digest; `None` if the text is no digest.
    pub fn parse(stored: &str) -> Option<Self> {
        u128::from_str_radix(stored, 16).ok().map(Self)
    }

    fn hash(hash: Sha256) -> Self {
        Self(hash.finalize().iter().take(16).fold(0, |all, byte| all << 8 | u128::from(*byte)))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
