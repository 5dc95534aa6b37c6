//! Recent answers of the API server, bounded in number, size and time.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use knative_operator_rules::authorization::permission::Permission;
use lru::LruCache;
use tokio::sync::OnceCell;

use knative_operator_rules::authorization::author::User;

/// Maximum number of answers.
const MAX_ANSWERS: NonZeroUsize = NonZeroUsize::new(2048).unwrap();
/// Maximum size in bytes of a user whose answers are kept.
const MAX_USER: usize = 4096;
/// Time for which an answer is valid, as a change of permissions takes effect after it.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Who asks what.
type Key = (User, Permission);

/// An answer, or the request for it: those who ask the same at the same time share it.
#[derive(Debug)]
pub struct Entry {
    created: Instant,
    /// Whether the permission is granted.
    pub allowed: OnceCell<bool>,
}

impl Entry {
    fn new() -> Arc<Self> {
        Arc::new(Self { created: Instant::now(), allowed: OnceCell::new() })
    }
}

/// Recent answers.
pub struct Cache(Mutex<LruCache<Key, Arc<Entry>>>);

impl Cache {
    /// No answers yet.
    pub fn new() -> Self {
        Self(Mutex::new(LruCache::new(MAX_ANSWERS)))
    }

    /// The entry of the question, which may be new.
    pub fn entry(&self, user: &User, permission: &Permission) -> Arc<Entry> {
        if user.size() > MAX_USER {
            return Entry::new();
        }
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get_or_insert_mut((user.clone(), permission.clone()), Entry::new);
        if entry.created.elapsed() > MAX_AGE {
            *entry = Entry::new();
        }
        Arc::clone(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_bounded_and_by_user_and_permission() {
        let (cache, user) = (Cache::new(), |name: String| User { username: name, ..User::default() });
        let permission = Permission::to_use("fleet", "a");
        let jane = cache.entry(&user("jane".into()), &permission);
        jane.allowed.set(true).unwrap();
        assert_eq!(cache.entry(&user("jane".into()), &permission).allowed.get(), Some(&true));
        assert_eq!(cache.entry(&user("joe".into()), &permission).allowed.get(), None);
        assert_eq!(cache.entry(&user("jane".into()), &Permission::to_use("fleet", "b")).allowed.get(), None);
        let mut grouped = user("jane".into());
        grouped.groups.push("admins".into());
        assert_eq!(cache.entry(&grouped, &permission).allowed.get(), None);
        for number in 0..3000 {
            cache.entry(&user(number.to_string()), &permission);
        }
        assert_eq!(cache.0.lock().unwrap().len(), MAX_ANSWERS.get());
        assert_eq!(cache.entry(&user("jane".into()), &permission).allowed.get(), None, "the oldest is dropped");
        let large = user("x".repeat(MAX_USER + 1));
        cache.entry(&large, &permission).allowed.set(true).unwrap();
        assert_eq!(cache.entry(&large, &permission).allowed.get(), None, "large users are not kept");
    }
}
