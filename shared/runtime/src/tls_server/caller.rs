//! What a handler knows about the connection of its request, and the memory that the request uses.

use std::sync::Arc;

use super::connections::Connection;

/// The connection of a request. It is one of the extensions of each request.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Connection>);

/// Memory of a request, until dropped.
#[derive(Debug)]
pub struct Memory {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Caller {
    /// The connection is `connection`.
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        Self(Arc::clone(connection))
    }

    /// A request of this connection, which uses no memory yet.
    pub fn memory(&self) -> Memory {
        Memory { connection: Arc::clone(&self.0), bytes: 0 }
    }

    /// Whether no peer has more requests in progress than this one.
    pub fn has_most_requests(&self) -> bool {
        self.0.has_most_requests()
    }
}

impl Memory {
    /// Adds `bytes` that arrived. Returns whether they fit within the limit for the requests of all
    /// connections. Connections that use more give way: if the bytes don't fit, this request is
    /// among the largest, and should be refused.
    #[must_use]
    pub fn add(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.connection.take_memory(bytes)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.connection.return_memory(self.bytes);
    }
}
