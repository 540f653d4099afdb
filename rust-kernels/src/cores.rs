//! The number of cores to compute on.
use std::collections::HashSet;

/// Physical cores that this process may run on, or fewer if a control group allows less. At least 1. Threads on one
/// core share its arithmetic units and caches: a second thread adds no speed, and all threads wait for the slowest.
/// If the system does not report which processors share a core, all of them count.
pub fn physical() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let processors = allowed();
    let cores: Option<HashSet<String>> = processors.into_iter().map(siblings).collect();
    match cores {
        Some(cores) if !cores.is_empty() => cores.len().min(usable),
        _ => usable,
    }
}

/// Processors that this process may run on; empty if unknown.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    // SAFETY: the set is as large as stated; all zeros are an empty set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

/// The processors of this processor's core, in Linux's list format.
fn siblings(cpu: usize) -> Option<String> {
    std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_cores_are_at_most_the_processors() {
        let cores = physical();
        assert!(cores >= 1 && cores <= std::thread::available_parallelism().map_or(1, usize::from));
    }
}
