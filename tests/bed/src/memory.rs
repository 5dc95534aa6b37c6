//! How much memory is available, and how much of it tests may use at the same time.

use std::path::Path;

/// Memory of a test with two clusters and the processes of the operator, in MiB.
pub const TEST: u64 = 1400;
/// Memory from which on the control planes collect garbage less often, in MiB.
const PLENTY: u64 = 6000;
/// Memory from which on they hardly do, in MiB. [`GO_MEMORY`] bounds each.
const ABUNDANCE: u64 = 14_000;
/// Soft limit on the memory of a process of a control plane (`GOMEMLIMIT`).
const GO_MEMORY: &str = "900MiB";

/// Memory that this process and others may still take, in MiB: that of the machine, and that of the
/// control groups of this process.
pub fn available() -> u64 {
    let machine = read("/proc/meminfo").and_then(|text| field(&text, "MemAvailable:")).unwrap_or(u64::MAX / 1024);
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        match controllers {
            "" => left("/sys/fs/cgroup", path, "memory.max", "memory.current"),
            "memory" => left("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => None,
        }
    });
    limits.fold(machine / 1024, u64::min)
}

/// What is left of the limit of a control group and its parents, in MiB.
fn left(root: &str, path: &str, limit: &str, usage: &str) -> Option<u64> {
    let folders = Path::new(path).ancestors().map(|path| Path::new(root).join(path.strip_prefix("/").unwrap_or(path)));
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let rest = folders.filter_map(|folder| {
        let (limit, usage) = (number(&folder.join(limit))?, number(&folder.join(usage))?);
        // Cached files are no obstacle.
        let state = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cached = ["active_file ", "inactive_file "].iter().filter_map(|name| field(&state, name)).sum::<u64>();
        Some(limit.saturating_sub(usage.saturating_sub(cached)))
    });
    rest.min().map(|bytes| bytes >> 20)
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// How many tests run at the same time: two for each processor, since tests also wait, and fewer
/// with little memory.
pub fn threads(processors: u64, available: u64) -> u64 {
    (available / TEST).clamp(1, 2 * processors)
}

/// Environment of the processes of control planes, which live for minutes. With `one_processor`,
/// each uses one: beside others, a second thread mostly looks for work, a quarter of the time at
/// rest.
pub fn of_control_planes(one_processor: bool) -> Vec<(String, String)> {
    let mut variables = vec![("GOGC", garbage(available())), ("GOMEMLIMIT", GO_MEMORY)];
    if one_processor {
        variables.push(("GOMAXPROCS", "1"));
    }
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// GOGC for this much memory.
fn garbage(available: u64) -> &'static str {
    match available {
        ..PLENTY => "75",
        PLENTY..ABUNDANCE => "400",
        ABUNDANCE.. => "1000",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_means_fewer_tests() {
        assert_eq!(threads(2, 16_000), 4);
        assert_eq!(threads(16, 3_500), 2);
        assert_eq!(threads(16, 100), 1);
        assert_eq!((garbage(3_500), garbage(16_000)), ("75", "1000"));
        let machine = available();
        assert!(machine > 0 && machine < 1 << 30, "{machine}");
    }
}
