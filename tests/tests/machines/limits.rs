//! A user without root on a machine without IPv6, and little memory.

use std::net::{Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};

use knative_operator_tests::skip::{KERNEL, skip};
use knative_operator_tests::{memory, network, tools};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::machine::{SHORT, on_a_machine};

/// The user "nobody".
const NOBODY: u32 = 65534;

#[test]
fn a_user_without_root_on_a_machine_without_ipv6() {
    on_a_machine(|machine| {
        // Where IPv6 doesn't exist at all, there is nothing to turn off.
        let written = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        assert!(TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err(), "there still is IPv6: {written:?}");
        machine.set_home("home")?;
        machine.set_user(NOBODY);
        machine.give(machine.dir())?;
        let output = machine.up_and_down(&["isolate"], &["--product"])?;
        assert!(output.contains("operator and webhook run on the hub"), "{output}");
        machine.up_and_down(&[], &[]).map(drop)
    });
}

#[test]
fn root_without_the_right_to_namespaces_is_recognized() {
    on_a_machine(|machine| {
        let mut probe = machine.command(Path::new("setpriv"));
        probe.args(["--bounding-set", "-sys_admin"]).arg(tools::binary("isolate")?).arg(network::PROBE);
        let (well, output) = machine.run(probe, SHORT)?;
        assert!(!well && output.lines().count() == 1 && output.contains("Operation not permitted"), "{output}");
        Ok(())
    });
}

/// A control group; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// A group with a limit of `megabytes`, or why there is none.
    fn new(megabytes: u64) -> Result<Self, String> {
        let name = format!("knative-machine-{}", std::process::id());
        let versions = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (root, limit) in versions.map(|(root, limit)| (PathBuf::from(root), limit)) {
            let group = Self(root.join(&name));
            if std::fs::create_dir(&group.0).is_ok()
                && group.0.join(limit).is_file()
                && std::fs::write(group.0.join(limit), (megabytes << 20).to_string()).is_ok()
            {
                return Ok(group);
            }
        }
        Err("no control group with a limit for memory can be created".to_owned())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn without_space_one_line_says_so() {
    on_a_machine(|machine| {
        let small = machine.folder("small")?;
        mount("tmpfs", &small, "tmpfs", MountFlags::empty(), Some(c"size=200m,mode=777"))?;
        machine.temporary("small")?;
        let (well, output) = machine.cluster(&["up", "--product"], SHORT)?;
        assert!(!well && output.lines().count() == 1, "{output}");
        assert!(output.contains(" MiB are free in ") && output.contains("TMPDIR"), "{output}");
        machine.idle()?;
        machine.temporary("tmp")?;
        Ok(unmount(&small, UnmountFlags::DETACH)?)
    });
}

#[test]
fn a_test_fits_into_the_memory_that_is_reckoned_for_it() {
    on_a_machine(|machine| {
        let group = match Group::new(memory::TEST) {
            Ok(group) => group,
            Err(reason) => {
                skip(KERNEL, &reason);
                return Ok(());
            }
        };
        let enter = format!("echo $$ >'{}' && exec \"$0\" \"$@\"", group.0.join("cgroup.procs").display());
        let isolate = tools::binary("isolate")?.display().to_string();
        let mut threads = machine.command(&PathBuf::from("sh"));
        threads.args(["-c", &enter, &isolate, "sh", "-c", "echo $RUST_TEST_THREADS"]).env_remove("RUST_TEST_THREADS");
        let (well, output) = machine.run(threads, SHORT)?;
        assert!(well && output == "1\n", "{output}");
        machine.up_and_down(&["sh", "-c", &enter, &isolate], &["--product"])?;
        let killed = ["memory.oom_control", "memory.events"].map(|name| std::fs::read_to_string(group.0.join(name)));
        let killed = killed.into_iter().flatten().collect::<String>();
        assert!(killed.lines().any(|line| line == "oom_kill 0"), "{killed}");
        machine.idle()
    });
}
