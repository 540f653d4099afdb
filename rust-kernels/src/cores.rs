//! How many cores there are to compute on.
use std::collections::HashSet;

/// Physical cores that this process may run on, or fewer where a control group allows less. Threads of one core share its
/// arithmetic and its caches: a second one computes no faster, and all wait for the slowest. Where nobody tells which
/// processors share a core, all of them count. At least 1.
pub fn physical() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let processors = allowed();
    let cores: Option<HashSet<String>> = processors.into_iter().map(siblings).collect();
    match cores {
        Some(cores) if !cores.is_empty() => cores.len().min(usable),
        _ => usable,
    }
}

/// Processors that this process may run on; empty where that cannot be known.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    // SAFETY: the set is as large as is said; zeros are an empty one.
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

/// The processors of a processor's core, as Linux lists them.
fn siblings(cpu: usize) -> Option<String> {
    std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_cores_than_processors() {
        let cores = physical();
        assert!(cores >= 1 && cores <= std::thread::available_parallelism().map_or(1, usize::from));
    }
}
