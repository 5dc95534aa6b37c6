//! Processes that end with the process that started them.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Result, environment, tools};

/// Time limit for a process that ends by itself.
const LIFE: Duration = Duration::from_secs(600);
/// Time limit for a process that is stopped, with its grace period.
const END: Duration = Duration::from_secs(180);

/// A running process. Dropping it stops it and waits for its end.
#[derive(Debug)]
pub struct Process {
    name: String,
    tether: Child,
    line: Option<ChildStdin>,
    pid_file: PathBuf,
    restart: PathBuf,
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
        let mut tether = Command::new(tools::binary("tether")?);
        tether.arg(pid_files.0).arg(grace.as_secs().to_string()).arg(program).args(arguments);
        // As in a container: only PATH of this environment.
        let mut tether = environment::confine(&mut tether, dir)
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
        let (line, restart) = (tether.stdin.take(), pid_files.0.with_extension("restart"));
        Ok(Self { name: name.to_owned(), tether, line, pid_file, restart, log })
    }

    /// Whether it is started again after a failure, as the kubelet does. A signal that ends it is
    /// no failure.
    pub fn restart_on_failure(&self, restart: bool) -> Result<()> {
        if restart {
            std::fs::write(&self.restart, "")?;
        } else {
            std::fs::remove_file(&self.restart)?;
        }
        Ok(())
    }

    /// Stops it. Dropping waits until it has ended.
    pub fn stop(&mut self) {
        drop(self.line.take());
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
        let deadline = Instant::now() + crate::wait::LIMIT;
        loop {
            if let Some(pid) = std::fs::read_to_string(&self.pid_file).ok().and_then(|t| t.parse().ok()) {
                return Ok(pid);
            }
            if Instant::now() > deadline {
                return Err(format!("{} did not start:\n{}", self.name, self.log()).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends it `signal`.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_raw(self.pid()?).ok_or("no process id")?, signal)?)
    }

    /// Waits until it exits.
    pub fn wait(&mut self) -> Result<i32> {
        self.wait_for(LIFE)
    }

    fn wait_for(&mut self, limit: Duration) -> Result<i32> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Some(status) = self.tether.try_wait()? {
                return Ok(status.code().unwrap_or(-1));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("{} has not ended after {limit:?}", self.name).into())
    }
}

thread_local! {
    /// Ends of the logs of the processes that this thread stopped.
    static STOPPED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}
/// Lines of a log that are kept.
const KEPT: usize = 60;

/// Ends of the logs of the processes that this thread stopped since the last call: after a failed
/// test, what they said.
pub fn last_words() -> String {
    STOPPED.take().join("\n")
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if let Err(error) = self.wait_for(END) {
            eprintln!("{error}");
            let _ = self.tether.kill();
        }
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(KEPT)..].join("\n");
        STOPPED.with_borrow_mut(|stopped| stopped.push(format!("==> end of the log of {}\n{end}", self.name)));
    }
}
