//! How much space is left for files.

use std::path::Path;

use crate::Result;

/// What must be free to start a control plane, in MiB: etcd allocates 130 at once, and tests keep
/// several control planes.
const NEEDED: u64 = 1024;

/// Fails if less is free in the file system of `folder`. Without space, the processes of a control
/// plane can't write why they end.
pub fn check(folder: &Path) -> Result<()> {
    let system = rustix::fs::statvfs(folder)?;
    let free = system.f_bavail.saturating_mul(system.f_frsize) >> 20;
    if free >= NEEDED {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(folder).display();
    Err(format!("{free} MiB are free in {parent}; a control plane needs {NEEDED} MiB: delete files, or set TMPDIR")
        .into())
}
