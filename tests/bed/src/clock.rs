//! The wall clock of a process, which is wrong or steps.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kubelet::script;
use crate::{Result, tools};

/// An adjustable clock for processes with a dynamic loader, into which a library is preloaded.
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Builds it in `dir`, with the C compiler. It is right at first.
    pub fn new(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
        std::fs::write(&source, include_str!("clock/shift.c"))?;
        let output = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).output()?;
        if !output.status.success() {
            return Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let clock = Self { library, file: dir.join("offset") };
        clock.set(0)?;
        Ok(clock)
    }

    /// The environment of a process with this clock.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let path = |path: &Path| path.display().to_string();
        [("LD_PRELOAD", path(&self.library)), ("CLOCK_OFFSET_FILE", path(&self.file))]
    }

    /// An executable in `dir` that runs the binary `name` of the workspace with this clock.
    pub fn program(&self, name: &str, dir: &Path) -> Result<PathBuf> {
        let (program, binary) = (dir.join(name), tools::binary(name)?);
        let environment = self.environment().map(|(name, value)| format!("{name}={value}")).join(" ");
        script(&program, &format!("#!/bin/sh\n{environment} exec {} \"$@\"\n", binary.display()))?;
        Ok(program)
    }

    /// Sets the difference of the process's clock to the real one, in seconds.
    pub fn set(&self, seconds: i64) -> Result<()> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.file)?;
        Ok(file.write_all_at(&seconds.to_ne_bytes(), 0)?)
    }
}
