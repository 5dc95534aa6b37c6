//! The wall clock of a process, which steps.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kubelet::script;
use crate::{Result, tools};

/// An executable that runs the operator with an adjustable clock.
pub struct Clock {
    /// The executable.
    pub program: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Builds it in `dir`, with the C compiler.
    pub fn new(dir: &Path) -> Result<Self> {
        let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
        std::fs::write(&source, include_str!("clock.c"))?;
        let output = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).output()?;
        if !output.status.success() {
            return Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let clock = Self { program: dir.join("operator"), file: dir.join("offset") };
        clock.set(0)?;
        let operator = tools::binary("knative-operator")?;
        let (library, file) = (library.display(), clock.file.display());
        let text =
            format!("#!/bin/sh\nCLOCK_OFFSET_FILE={file} LD_PRELOAD={library} exec {} \"$@\"\n", operator.display());
        script(&clock.program, &text)?;
        Ok(clock)
    }

    /// Sets the difference of the process's clock to the real one, in seconds.
    pub fn set(&self, seconds: i64) -> Result<()> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.file)?;
        Ok(file.write_all_at(&seconds.to_ne_bytes(), 0)?)
    }
}
