//! Keeps logs of the processes and audit logs with conditions and events of the end-to-end tests,
//! which the test `texts` reads afterwards.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Result;
use crate::skip::{self, Needs};

/// The folder with a folder for each run of the end-to-end tests, next to the binaries.
pub fn folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.parent()?.join("texts"))
}

/// The folder of this process; `None` unless it runs the end-to-end tests.
static OWN: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let executable = std::env::current_exe().ok()?;
    executable.file_name()?.to_str()?.starts_with("e2e-").then_some(())?;
    let folder = folder()?;
    for old in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        if !Path::new("/proc").join(old.file_name()).exists() {
            let _ = std::fs::remove_dir_all(old.path());
        }
    }
    let own = folder.join(std::process::id().to_string());
    std::fs::create_dir_all(&own).ok()?;
    Some(own)
});

/// Makes `path`, which must not exist, a link to a file that remains when the folder of `path` is
/// removed. Does nothing outside of the end-to-end tests.
pub fn keep(path: &Path) -> Result<()> {
    let Some(kept) = next(path) else { return Ok(()) };
    // What exists is appended to.
    File::create(&kept)?;
    Ok(std::os::unix::fs::symlink(kept, path)?)
}

/// Keeps what is in `path` so far, and empties it.
pub fn renew(path: &Path) -> Result<()> {
    if let Some(kept) = next(path) {
        std::fs::copy(path, kept)?;
    }
    Ok(File::options().write(true).truncate(true).open(path).map(drop)?)
}

/// The next file to keep for `path`.
fn next(path: &Path) -> Option<PathBuf> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = path.file_name()?.to_str()?;
    Some(OWN.as_ref()?.join(format!("{}-{name}", NUMBER.fetch_add(1, Ordering::Relaxed))))
}

/// Calls `each` with every line of every kept file, and whether it is of an audit log. Returns
/// whether there are any.
pub fn lines(mut each: impl FnMut(&str, bool)) -> bool {
    let folders = folder().and_then(|folder| std::fs::read_dir(folder).ok());
    let files = folders
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|run| std::fs::read_dir(run.path()).into_iter().flatten().flatten());
    let mut found = false;
    for file in files {
        found = true;
        let audit = file.file_name().to_string_lossy().ends_with("audit.log");
        let content = File::open(file.path()).map(BufReader::new);
        let lines = content.into_iter().flat_map(BufRead::lines).map_while(std::result::Result::ok);
        lines.for_each(|line| each(&line, audit));
    }
    if !found {
        skip::skip(Needs::Everywhere, "run the end-to-end tests first (cargo test --test e2e)");
    }
    found
}
