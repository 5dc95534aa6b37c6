//! Folders that other users may reach: a clone in the home folder of root is closed to them.

use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use knative_operator_tests::Result;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountFlags, mount, mount_bind};

/// Makes `folders` reachable for all users in the mount namespace of this thread: in place of the
/// first folder on the way that is closed, there is an empty one with nothing but `folders`.
pub fn open(folders: &[&Path]) -> Result<()> {
    let mut closed: Vec<PathBuf> = folders.iter().filter_map(|folder| first_closed(folder)).collect();
    closed.sort();
    closed.dedup();
    for closed in closed {
        let inside: Vec<_> = folders.iter().filter(|folder| folder.starts_with(&closed)).collect();
        let handles = inside.iter().map(|folder| openat(CWD, **folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
        let handles = handles.collect::<rustix::io::Result<Vec<_>>>()?;
        mount("tmpfs", &closed, "tmpfs", MountFlags::empty(), Some(c"mode=755"))?;
        for (folder, handle) in inside.into_iter().zip(handles) {
            std::fs::create_dir_all(folder)?;
            mount_bind(format!("/proc/self/fd/{}", handle.as_raw_fd()), *folder)?;
        }
    }
    Ok(())
}

/// The first folder on the way to `folder` that other users may not pass.
fn first_closed(folder: &Path) -> Option<PathBuf> {
    let mut way: Vec<&Path> = folder.ancestors().skip(1).collect();
    way.reverse();
    let is_closed = |path: &&Path| path.metadata().is_ok_and(|data| data.permissions().mode() & 0o001 == 0);
    way.into_iter().find(is_closed).map(Path::to_owned)
}
