//! A machine: a thread with a network and mounts of its own, and an environment.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use knative_operator_tests::skip::skip;
use knative_operator_tests::{Result, environment, network, outside, registry, releases, tools, wait};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_remount, unmount};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::passage;

/// Time limit of `cluster up` with the product, on a busy machine.
pub const LONG: Duration = Duration::from_secs(600);
/// Time within which everything works or says what is in the way.
pub const SHORT: Duration = wait::LIMIT;
/// Where the cache is mounted for a user who may not read that of root.
const STORE: &str = "/mnt";

/// A machine. Everything that is started on it mentions its folder.
pub struct Machine {
    dir: TempDir,
    variables: Vec<(OsString, OsString)>,
    user: Option<u32>,
    mounts: Vec<PathBuf>,
    temporary: PathBuf,
}

/// Runs `test` on a machine; at its end, nothing may be left there.
pub fn on_a_machine(test: impl FnOnce(&mut Machine) -> Result<()> + Send + 'static) {
    // A container of an engine may have root without the right to namespaces.
    let obstacle = if geteuid().is_root() { network::obstacle() } else { Some("it needs root".to_owned()) };
    if let Some(obstacle) = obstacle {
        skip(registry::needs(), &format!("a machine with a network and mounts of its own: {obstacle}"));
        return;
    }
    let run = move || -> Result<()> {
        network::isolate()?;
        network::isolate_mounts()?;
        let mut machine = Machine::new()?;
        test(&mut machine)?;
        machine.cluster(&["down"], LONG)?;
        machine.idle()
    };
    match std::thread::spawn(run).join() {
        Ok(outcome) => outcome.unwrap(),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

impl Machine {
    fn new() -> Result<Self> {
        let (dir, variables, mounts) = (tools::folder("knative-machine-")?, Vec::new(), Vec::new());
        let mut machine = Self { dir, variables, user: None, mounts, temporary: PathBuf::new() };
        machine.temporary("tmp")?;
        Ok(machine)
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a folder that all users may write, who may enter this machine's folder.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir_all(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        Ok(path)
    }

    /// Makes `name` the folder of temporary files.
    pub fn temporary(&mut self, name: &str) -> Result<()> {
        self.temporary = self.folder(name)?;
        self.set("TMPDIR", self.temporary.clone());
        Ok(())
    }

    /// Sets an environment variable.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.into(), value.into()));
    }

    /// Runs everything as this user from now on.
    pub fn set_user(&mut self, user: u32) {
        self.user = Some(user);
    }

    /// Makes the cache of tools and the home folders in `folder`, so that no tool is installed. All
    /// users may use it, and the project, wherever it is. Returns the folder of the tools, since
    /// others than those and the project may be out of reach from now on.
    pub fn set_home(&mut self, folder: &str) -> Result<PathBuf> {
        let tools = tools::control_plane("kubectl")?.parent().ok_or("no folder")?.to_owned();
        let store = tools.join("../..").canonicalize()?;
        mount_bind(&store, STORE)?;
        let releases = releases::best().dir;
        let home = self.folder(folder)?;
        let cache = self.folder(&format!("{folder}/cache/knative-operator"))?;
        for name in ["store", "durations"] {
            self.folder(&format!("{folder}/cache/knative-operator/{name}"))?;
        }
        let copies = cache.join("tools").join(tools.file_name().ok_or("no key")?);
        std::fs::create_dir_all(&copies)?;
        for entry in std::fs::read_dir(&tools)?.flatten() {
            let (copy, target) = (copies.join(entry.file_name()), std::fs::canonicalize(entry.path())?);
            match target.strip_prefix(&store) {
                Ok(path) => symlink(Path::new(STORE).join(path), copy)?,
                Err(_) if target.is_file() => drop(std::fs::copy(target, copy)?),
                Err(_) => {}
            }
        }
        self.set("KNATIVE_OPERATOR_CACHE", cache);
        self.set("HOME", home);
        self.set("BUNDLE", Path::new(STORE).join(releases.strip_prefix(&store).unwrap_or(&releases)));
        self.set(outside::FOLDER, "");
        // The binaries and images may be outside of the project.
        let (project, binaries) = (tools::project().canonicalize()?, tools::binary("cluster")?.canonicalize()?);
        let target = project.join("target").canonicalize()?;
        passage::open(&[&project, &target, binaries.parent().ok_or("no folder")?])?;
        Ok(copies)
    }

    /// A command with the environment of this machine.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        environment::clean(&mut command);
        for (name, value) in &self.variables {
            if value.is_empty() {
                command.env_remove(name)
            } else {
                command.env(name, value)
            };
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command.stdin(Stdio::null());
        command
    }

    /// `cluster` with `arguments` and the clusters of `folder`.
    pub fn cluster_in(&self, folder: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = self.command(&tools::binary("cluster")?);
        command.args(arguments).arg("--folder").arg(self.path(folder));
        Ok(command)
    }

    /// `cluster` with `arguments`, after the command `before`.
    pub fn cluster_after(&self, before: &[&str], arguments: &[&str]) -> Result<Command> {
        let binary = tools::binary("cluster")?;
        let mut command = match before {
            [] => self.command(&binary),
            [program, rest @ ..] => {
                let mut command = self.command(&tools::binary(program).unwrap_or_else(|_| PathBuf::from(program)));
                command.args(rest).arg(&binary);
                command
            }
        };
        command.args(arguments).arg("--folder").arg(self.path("clusters"));
        Ok(command)
    }

    /// Runs `cluster` with `arguments`; returns whether it succeeded, and its output.
    pub fn cluster(&self, arguments: &[&str], limit: Duration) -> Result<(bool, String)> {
        self.run(self.cluster_in("clusters", arguments)?, limit)
    }

    /// Runs `cluster up` with `arguments` after the command `before`, and `cluster down`. Both must
    /// succeed.
    pub fn up_and_down(&self, before: &[&str], arguments: &[&str]) -> Result<String> {
        let all = [&["up"], arguments].concat();
        let (well, output) = self.run(self.cluster_after(before, &all)?, LONG)?;
        if !well {
            return Err(format!("cluster up: {output}").into());
        }
        let (well, end) = self.cluster(&["down"], LONG)?;
        if well { Ok(output) } else { Err(format!("cluster down: {end}").into()) }
    }

    /// Runs `command`; returns whether it succeeded, and its output.
    pub fn run(&self, mut command: Command, limit: Duration) -> Result<(bool, String)> {
        let path = self.path("output");
        // Its folder may belong to another user.
        let _ = std::fs::remove_file(&path);
        let output = File::create_new(&path)?;
        let mut child = command.stdout(output.try_clone()?).stderr(output).spawn()?;
        let ended = ends(&mut child, limit)?;
        let text = std::fs::read_to_string(path)?;
        ended.map(|well| (well, text.clone())).ok_or_else(|| format!("{command:?} runs for {limit:?}: {text}").into())
    }

    /// Waits until no process is left that mentions this machine, and no temporary folder.
    pub fn idle(&self) -> Result<()> {
        let deadline = Instant::now() + wait::LIMIT;
        loop {
            let mut left = self.processes();
            left.extend(std::fs::read_dir(&self.temporary)?.flatten().map(|entry| entry.path().display().to_string()));
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("left behind: {left:#?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Command lines of processes that mention its folder.
    fn processes(&self) -> Vec<String> {
        let folder = self.dir.path().display().to_string();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        let mentions = |process: PathBuf| {
            let read = |file: &str| std::fs::read(process.join(file)).unwrap_or_default();
            let [command, variables] =
                ["cmdline", "environ"].map(|file| String::from_utf8_lossy(&read(file)).replace('\0', " "));
            (command.contains(&folder) || variables.contains(&folder)).then_some(command)
        };
        processes.filter_map(mentions).collect()
    }

    /// Makes `folder` read-only, apart from what is mounted in it.
    pub fn protect(&mut self, folder: &Path) -> Result<()> {
        if self.dir.path().starts_with(folder) {
            mount_bind(self.dir.path(), self.dir.path())?;
            self.mounts.push(self.dir.path().to_owned());
        }
        mount_bind_recursive(folder, folder)?;
        self.mounts.push(folder.to_owned());
        Ok(mount_remount(folder, MountFlags::BIND | MountFlags::RDONLY, "")?)
    }

    /// Makes `path` belong to the user of this machine.
    pub fn give(&self, path: &Path) -> Result<()> {
        Ok(chown(path, self.user, self.user)?)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for folder in ["clusters", "other"] {
            // Also after a failure.
            let _ = self.cluster_in(folder, &["down"]).map(|mut command| command.stdout(Stdio::null()).status());
        }
        for mount in self.mounts.iter().rev() {
            let _ = unmount(mount, UnmountFlags::DETACH);
        }
    }
}

/// Whether `child` succeeds; `None`, and it is killed, if it doesn't end within `limit`.
pub fn ends(child: &mut Child, limit: Duration) -> Result<Option<bool>> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}
