//! Control planes that tests lend to each other, with everything stored as at their start: a new
//! one takes some seconds of processor time.
//!
//! Only tests that [`open`] the pool lend and take. What a test had becomes free when it has
//! passed, unless it replaced the data or the programs of the control plane, or left a process
//! stopped.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use rustix::process::Signal;
use tempfile::TempDir;

use super::state::{Etcd, State};
use super::{Cluster, Setup, administrator, http_get};
use crate::process::Process;
use crate::subnet::Subnet;
use crate::{Result, memory, ports, texts, wait};

/// Maximum number of control planes that no test uses.
const FREE: usize = 12;
/// Memory that must be available to keep one, in MiB.
const MEMORY: u64 = 2 * memory::TEST;
/// Time limit until a control plane is as at its start.
const RENEWED: Duration = wait::LIMIT;
/// Time limit until the processes of a test have ended.
const ENDED: Duration = Duration::from_secs(60);
/// Interval of polls, where nothing can be watched.
const POLL: Duration = Duration::from_millis(10);

/// What a control plane had when it started.
pub(super) struct Start {
    state: State,
    files: BTreeSet<OsString>,
}

/// A control plane that no test uses.
struct Lent {
    setup: Setup,
    authority: String,
    components: BTreeMap<&'static str, Process>,
    start: Start,
    dir: Arc<TempDir>,
    /// The last field, as in [`Cluster`].
    subnet: Arc<Subnet>,
}

static ALL: Mutex<Vec<Lent>> = Mutex::new(Vec::new());

thread_local! {
    /// What the test of this thread had; `None` if it doesn't use the pool.
    static HAD: RefCell<Option<Vec<Lent>>> = const { RefCell::new(None) };
}

/// Makes the test of this thread use the pool until [`close`], unless `CONTROL_PLANES` is `new`.
pub fn open() {
    let is_used = std::env::var_os("CONTROL_PLANES").is_none_or(|planes| planes != "new");
    HAD.set(is_used.then(Vec::new));
}

/// Whether the test of this thread uses the pool.
pub(super) fn is_open() -> bool {
    HAD.with_borrow(Option::is_some)
}

/// Ends the use of the pool. If the test has `passed`, other tests may use what it had.
pub fn close(passed: bool) {
    let had = HAD.take().filter(|_| passed).unwrap_or_default();
    let lock = || ALL.lock().unwrap_or_else(PoisonError::into_inner);
    for lent in had {
        let has_room = lock().len() < FREE && memory::available() > MEMORY;
        // At rest, too, it would take processor time. Other tests don't wait for the signals.
        if !has_room || lent.signal(Signal::STOP).is_err() {
            continue;
        }
        let mut all = lock();
        if all.len() < FREE {
            all.push(lent);
        }
    }
}

/// Lends `cluster`, whose processes run, once its test has passed. Returns whether the test uses
/// the pool.
pub(super) fn lend(cluster: &mut Cluster, start: Start) -> bool {
    HAD.with_borrow_mut(|had| {
        let Some(had) = had else { return false };
        had.push(Lent {
            setup: cluster.setup,
            authority: cluster.authority.clone(),
            components: std::mem::take(&mut cluster.components),
            start,
            dir: Arc::clone(&cluster.dir),
            subnet: Arc::clone(&cluster.subnet),
        });
        true
    })
}

/// A free control plane with this `setup`, as at its start, if there is one.
pub(super) async fn take(name: &str, setup: Setup) -> Option<Cluster> {
    if !is_open() {
        return None;
    }
    let (lent, dropped) = {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|lent| lent.setup.is(setup)).map(|at| all.remove(at));
        let is_scarce = found.is_none() && memory::available() < MEMORY;
        // They make room for what this test will leave.
        let dropped = if is_scarce { all.len() } else { usize::from(found.is_none() && all.len() >= FREE) };
        (found, all.drain(..dropped).collect::<Vec<_>>())
    };
    drop(dropped);
    let lent = lent?;
    let renewed = tokio::time::timeout(RENEWED, lent.renewed(name)).await;
    let renewed = renewed.unwrap_or_else(|_| Err(format!("not as at its start after {RENEWED:?}").into()));
    renewed.inspect_err(|error| eprintln!("a control plane is not used again: {error}")).ok()
}

impl Start {
    /// Of a new control plane with its files in `dir`. Without, no other test uses it.
    pub(super) async fn of(dir: &Path) -> Option<Self> {
        let start = async { Result::Ok(Self { state: Etcd::of(dir).await?.state().await?, files: files(dir)? }) };
        let start = tokio::time::timeout(RENEWED, start).await;
        let start = start.unwrap_or_else(|_| Err(format!("its state was not read within {RENEWED:?}").into()));
        start.inspect_err(|error| eprintln!("a control plane will not be used again: {error}")).ok()
    }
}

impl Lent {
    fn signal(&self, signal: Signal) -> Result<()> {
        self.components.values().try_for_each(|component| component.signal(signal))
    }

    /// The control plane as at its start, with the name `name`.
    async fn renewed(self, name: &str) -> Result<Cluster> {
        self.signal(Signal::CONT)?;
        // If it fails, its processes end before its folder and its addresses are free.
        let Self { subnet, dir, setup, authority, mut start, components } = self;
        let (path, server) = (dir.path(), subnet.address(2));
        // They may still use the API server.
        let ended = tokio::time::timeout(ENDED, wait_until_ended(path, &components)).await;
        ended.map_err(|_| "processes of the test still run")??;
        let url = format!("https://{server}:{}", ports::API_SERVER);
        let client = administrator(path, name, &url, &authority).await?;
        // The controller deletes what is in them by their names, also in a later one.
        let namespaces = Api::<Namespace>::all(client.clone());
        let is_terminating = |namespace: &Namespace| namespace.metadata.deletion_timestamp.is_some();
        wait::until_all(&namespaces, "", RENEWED, "gone", |all| !all.iter().any(is_terminating)).await?;
        let etcd = Etcd::of(path).await?;
        for group in etcd.restore(&mut start.state).await? {
            wait_until_unserved(&client, &group).await;
        }
        // The API server may have registered groups once more, before it knew.
        etcd.restore(&mut start.state).await?;
        for file in files(path)?.difference(&start.files) {
            let is_of = |component: &str| file.to_str().is_some_and(|name| name.starts_with(component));
            let entry = path.join(file);
            if entry.is_dir() {
                std::fs::remove_dir_all(entry)?;
            } else if !components.keys().any(|component| is_of(component)) {
                std::fs::remove_file(entry)?;
            }
        }
        texts::renew(&path.join("audit.log"))?;
        let mut cluster = Cluster {
            name: name.to_owned(),
            authority,
            client,
            components,
            setup,
            binaries: None,
            pod_endpoint: None,
            server,
            machine: None,
            registry: None,
            start: Some(start),
            dir,
            subnet,
        };
        cluster.check()?;
        Ok(cluster)
    }
}

/// Names of the entries of `folder`.
fn files(folder: &Path) -> Result<BTreeSet<OsString>> {
    std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Waits until no process of the test runs: those with a file for their process id below `folder`,
/// except `components`.
async fn wait_until_ended(folder: &Path, components: &BTreeMap<&'static str, Process>) -> Result<()> {
    let own: Vec<i32> = components.values().map(Process::pid).collect::<Result<_>>()?;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() && !path.ends_with("rootfs") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "pid") {
                let pid = std::fs::read_to_string(&path)?.trim().parse().unwrap_or_default();
                while !own.contains(&pid) && Path::new("/proc").join(pid.to_string()).exists() {
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }
    Ok(())
}

/// Waits until the API server knows no custom resources of `group` any more.
async fn wait_until_unserved(client: &Client, group: &str) {
    loop {
        let answer = client.request_text(http_get(&format!("/apis/{group}"))).await;
        if matches!(answer, Err(kube::Error::Api(error)) if error.code == 404) {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}
