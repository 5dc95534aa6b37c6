//! Processes that end with the process that started them.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Result, tools};

/// A running process. Dropping it stops it and waits for its end.
#[derive(Debug)]
pub struct Process {
    name: String,
    tether: Child,
    line: Option<ChildStdin>,
    pid_file: PathBuf,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with its output in `dir/NAME.log`. To stop it, it gets SIGTERM and the
    /// grace period `grace`; without grace, SIGKILL.
    pub fn start(
        name: &str,
        dir: &Path,
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        grace: Duration,
    ) -> Result<Self> {
        let pid_file = dir.join(format!("{name}.pid"));
        Self::spawn(name, dir, program, arguments, environment, (&pid_file, None), grace)
    }

    /// Starts a container with `program`, which writes the process id of the container to
    /// `pid_file`.
    pub fn contained(
        name: &str,
        dir: &Path,
        program: &Path,
        arguments: &[String],
        pid_file: &Path,
        grace: Duration,
    ) -> Result<Self> {
        let own = dir.join(format!("{name}.runc.pid"));
        Self::spawn(name, dir, program, arguments, &[], (&own, Some(pid_file)), grace)
    }

    /// `pid_files`: the file for the process id of the program, and that of the container.
    fn spawn(
        name: &str,
        dir: &Path,
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        pid_files: (&Path, Option<&Path>),
        grace: Duration,
    ) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let log = dir.join(format!("{name}.log"));
        let pid_file = pid_files.1.unwrap_or(pid_files.0).to_owned();
        let _ = std::fs::remove_file(&pid_file);
        let out = File::options().create(true).append(true).open(&log)?;
        let mut tether = Command::new(tools::binary("tether")?)
            .arg(pid_files.0)
            .arg(grace.as_secs().to_string())
            .arg(program)
            .args(arguments)
            // As in a container: only PATH of this environment.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir)
            .envs(pid_files.1.map(|container| ("TETHER_CONTAINER", container)))
            .envs(pid_files.1.and_then(|_| Some(("TETHER_CONTAINER_ID", arguments.last()?))))
            .envs(environment.iter().cloned())
            // Ctrl-C signals the process group of the terminal: the tether must survive it to do
            // its work.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        let line = tether.stdin.take();
        Ok(Self { name: name.to_owned(), tether, line, pid_file, log })
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its exit code, once it has exited.
    pub fn ended(&mut self) -> Option<i32> {
        self.tether.try_wait().ok().flatten().map(|s| s.code().unwrap_or(-1))
    }

    /// Its process id.
    pub fn pid(&self) -> Result<i32> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(pid) = std::fs::read_to_string(&self.pid_file).ok().and_then(|t| t.parse().ok()) {
                return Ok(pid);
            }
            if Instant::now() > deadline {
                return Err(format!("{} did not start:\n{}", self.name, self.log()).into());
            }
            std::thread::yield_now();
        }
    }

    /// Sends it `signal`.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_raw(self.pid()?).ok_or("no process id")?, signal)?)
    }

    /// Waits until it exits.
    pub fn wait(&mut self) -> Result<i32> {
        Ok(self.tether.wait()?.code().unwrap_or(-1))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.line.take());
        let _ = self.tether.wait();
    }
}
