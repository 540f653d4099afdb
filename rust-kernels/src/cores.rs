//! Counts the cores to compute on.
use std::collections::HashSet;

/// Returns the number of physical cores that this process may run on, or fewer if a control group allows less (at
/// least one). Two threads of one core share its arithmetic units and caches: the second adds no speed, and all threads
/// wait for the slowest. If the system does not report which processors share a core, every processor counts.
pub fn physical() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let processors = allowed();
    let cores: Option<HashSet<String>> = processors.into_iter().map(siblings).collect();
    match cores {
        Some(cores) if !cores.is_empty() => cores.len().min(usable),
        _ => usable,
    }
}

/// Returns the processors that this process may run on; empty if unknown.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    // SAFETY: the call gets the set's true size; a set of all zeros is empty.
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

/// Returns the processors that share a core with processor `cpu`, in Linux's list format.
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
