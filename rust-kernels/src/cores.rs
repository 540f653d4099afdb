//! How many cores there are to compute on.
use std::collections::HashSet;

/// Physical cores that this process may run on. Threads of one core share its arithmetic and its caches: a thread more a core
/// computes no faster, and all wait for the slowest. At least 1; where nobody tells which processors share a core, all of them.
pub fn physical() -> usize {
    let processors = allowed();
    let cores: Option<HashSet<(u32, u32)>> = processors
        .iter()
        .map(|cpu| Some((topology(*cpu, "physical_package_id")?, topology(*cpu, "core_id")?)))
        .collect();
    match cores {
        Some(cores) if !cores.is_empty() => cores.len(),
        _ => std::thread::available_parallelism().map_or(1, usize::from),
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

fn topology(cpu: usize, what: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_cores_than_processors() {
        let cores = physical();
        assert!(cores >= 1);
        #[cfg(target_os = "linux")]
        assert!(cores <= allowed().len());
    }
}
