//! A value that its clones share until one of them is changed.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that its clones share until one of them is changed.
#[derive(Clone, Debug)]
pub struct CopyOnWrite<T>(Arc<T>);

impl<T> From<T> for CopyOnWrite<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for CopyOnWrite<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for CopyOnWrite<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_of_a_clone_changes_no_other() {
        let first = CopyOnWrite::from(vec![1]);
        let mut second = first.clone();
        assert!(Arc::ptr_eq(&first.0, &second.0));
        second.push(2);
        assert_eq!((&*first, &*second), (&vec![1], &vec![1, 2]));
    }
}
