//! How much memory a job may take: what it says itself, or a share of what this computer allows.

use crate::job::LimitSpec;

/// Bytes that a job may take.
pub fn allowed(limits: &LimitSpec) -> u64 {
    limits.memory.unwrap_or_else(|| computers() / 2)
}

/// The least of what the computer has, its container may use, and this process may address; where nothing of that is told, no bound.
fn computers() -> u64 {
    let line = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned)
    };
    let number = |text: Option<String>| text?.split_whitespace().next()?.parse::<u64>().ok();
    let kilobytes = number(line("/proc/meminfo", "MemTotal:"));
    let known = [
        kilobytes.map(|kilobytes| kilobytes.saturating_mul(1024)),
        number(line("/sys/fs/cgroup/memory.max", "")),
        number(line("/proc/self/limits", "Max address space")),
    ];
    known.into_iter().flatten().min().unwrap_or(u64::MAX)
}
