//! Counts the cores to compute on, and binds threads to them.
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::OnceLock;

/// Size of Linux's set of processors.
pub const MAX_PROCESSORS: usize = 1024;

/// Returns the number of physical cores that this process may run on, or fewer if a control group allows less (at
/// least one). Two threads of one core share its arithmetic units and caches: the second adds no speed, and all threads
/// wait for the slowest. If the system does not report which processors share a core, every processor counts.
pub fn physical() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    cores_of(&allowed()).map_or(usable, |cores| cores.min(usable))
}

/// Processors that share one memory, and how many physical cores they are.
pub struct Node {
    pub cores: usize,
    pub processors: Vec<usize>,
}

/// Returns the nodes (NUMA) whose processors this process may use, in the system's order. Returns none if the system
/// does not report them, or if a control group allows less time than all processors have.
pub fn nodes() -> Vec<Node> {
    let allowed = allowed();
    if std::thread::available_parallelism().map_or(0, usize::from) < allowed.len() {
        return Vec::new();
    }
    let read = |name: &str| list(&std::fs::read_to_string(format!("/sys/devices/system/node/{name}")).ok()?);
    let of_node = |node: usize| {
        let mut processors = read(&format!("node{node}/cpulist"))?;
        processors.retain(|processor| allowed.contains(processor));
        Some(Node { cores: cores_of(&processors).unwrap_or(processors.len()), processors })
    };
    let nodes = read("online").unwrap_or_default().into_iter().filter_map(of_node);
    nodes.filter(|node| !node.processors.is_empty()).collect()
}

/// Reads numbers in Linux's list format, such as `0-3,8`. Returns None for anything else.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MAX_PROCESSORS {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Returns the number of physical cores of the processors; None if the system does not report it.
fn cores_of(processors: &[usize]) -> Option<usize> {
    let cores: HashSet<String> = processors.iter().copied().map(siblings).collect::<Option<_>>()?;
    Some(cores.len()).filter(|count| *count > 0)
}

thread_local! {
    /// The processors to which `stay_on` bound this thread; empty if it may run on all.
    static BOUND: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Binds the calling thread to these processors, or to all that the process may use if there are none. Does nothing
/// where the system cannot bind threads, or refuses: binding only changes the speed.
pub fn stay_on(processors: &[usize]) {
    static ALL: OnceLock<Vec<usize>> = OnceLock::new();
    BOUND.with_borrow_mut(|bound| {
        if bound == processors {
            return;
        }
        let all = ALL.get_or_init(allowed); // before any thread is bound
        bind(if processors.is_empty() { all } else { processors });
        *bound = processors.to_vec();
    });
}

#[cfg(target_os = "linux")]
fn bind(processors: &[usize]) {
    // SAFETY: the call gets the set's true size; processors beyond the set are left out.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for processor in processors.iter().filter(|processor| **processor < MAX_PROCESSORS) {
            libc::CPU_SET(*processor, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(not(target_os = "linux"))]
fn bind(_: &[usize]) {}

/// Returns the processors that this process may run on; empty if unknown.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    // SAFETY: the call gets the set's true size; a set of all zeros is empty.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (0..MAX_PROCESSORS).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
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

    #[test]
    fn reads_linux_lists_of_processors() {
        assert_eq!(list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list("\n"), Some(vec![]));
        for wrong in ["a", "1-", "0-99999999", "-1"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_bound_thread_runs_on_its_processors_until_it_is_released() {
        std::thread::spawn(|| {
            let all = allowed();
            let last = *all.last().expect("a processor");
            stay_on(&[last]);
            assert_eq!(allowed(), [last]);
            stay_on(&[]);
            assert_eq!(allowed(), all);
        })
        .join()
        .expect("the thread ends");
    }
}
