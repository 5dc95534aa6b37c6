//! Numbers of objects, for people.

use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of kinds that a message names.
const MAX_NAMED: usize = 5;

/// Numbers of objects by kind, as `plural.group`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsersObjects(BTreeMap<String, u64>);

impl UsersObjects {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for UsersObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let named = all.len().min(MAX_NAMED);
        let more = if all.len() > named { format!(" and {} more kinds", all.len() - named) } else { String::new() };
        write!(f, "{}{more}", all[..named].join(", "))
    }
}

impl FromIterator<(String, u64)> for UsersObjects {
    fn from_iter<I: IntoIterator<Item = (String, u64)>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_kinds_are_named() {
        let all =
            |count: u64| -> UsersObjects { (0..count).map(|n| (format!("kind{n}.example.com"), n + 1)).collect() };
        assert!(all(0).is_empty());
        assert_eq!(all(2).to_string(), "1 kind0.example.com, 2 kind1.example.com");
        assert!(all(7).to_string().ends_with("5 kind4.example.com and 2 more kinds"));
    }
}
