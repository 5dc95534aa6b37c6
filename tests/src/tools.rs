//! Paths of binaries.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::Result;

/// Root folder of the project.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// A binary of the workspace, in the folder of the running one.
pub fn binary(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not built: run `cargo build --workspace` first").into())
}

/// A binary of the control plane, from `tests/tools/install.sh`.
pub fn control_plane(name: &str) -> Result<PathBuf> {
    static FOLDER: LazyLock<std::result::Result<PathBuf, String>> = LazyLock::new(|| {
        let script = project().join("tests/tools/install.sh");
        let output = Command::new(&script)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| format!("{}: {e}", script.display()))?;
        if !output.status.success() {
            return Err(format!("{} failed", script.display()));
        }
        Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    });
    Ok(FOLDER.clone()?.join(name))
}
