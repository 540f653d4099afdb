//! Keeps the objects to which Deno refers by handle, which is a number. A handle that is stale or belongs to another
//! kind of object is an error. It is never used as a pointer.
use crate::{Grammar, Matcher, Vocabulary};
use anyhow::{Result, bail};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

#[derive(Clone)]
pub enum Object {
    Vocabulary(Arc<Vocabulary>),
    Grammar(Arc<Grammar>),
    Matcher(Arc<Mutex<Matcher>>),
    /// The thread of a compilation that exceeded its time limit and still runs.
    Overdue(Arc<JoinHandle<()>>),
}

type Slot = (u32, Option<Object>);
static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

fn slots() -> MutexGuard<'static, Vec<Slot>> {
    SLOTS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the object's handle: the low half is the slot's index, the high half its generation.
pub fn insert(object: Object) -> u64 {
    let mut slots = slots();
    let free = slots.iter().position(|slot| slot.1.is_none());
    let index = free.unwrap_or_else(|| {
        slots.push((0, None));
        slots.len() - 1
    });
    let generation = slots[index].0.wrapping_add(1);
    slots[index] = (generation, Some(object));
    u64::from(generation) << 32 | index as u64
}

fn get(handle: u64, what: &str) -> Result<Object> {
    match slots().get(handle as u32 as usize) {
        Some((generation, Some(object))) if u64::from(*generation) == handle >> 32 => Ok(object.clone()),
        _ => bail!("{handle:#x} is not the handle of {what}"),
    }
}

pub fn vocabulary(handle: u64) -> Result<Arc<Vocabulary>> {
    match get(handle, "a vocabulary")? {
        Object::Vocabulary(vocabulary) => Ok(vocabulary),
        _ => bail!("{handle:#x} is not the handle of a vocabulary"),
    }
}

pub fn grammar(handle: u64) -> Result<Arc<Grammar>> {
    match get(handle, "a grammar")? {
        Object::Grammar(grammar) => Ok(grammar),
        _ => bail!("{handle:#x} is not the handle of a grammar"),
    }
}

pub fn matcher(handle: u64) -> Result<Arc<Mutex<Matcher>>> {
    match get(handle, "a matcher")? {
        Object::Matcher(matcher) => Ok(matcher),
        _ => bail!("{handle:#x} is not the handle of a matcher"),
    }
}

pub fn overdue(handle: u64) -> Result<Arc<JoinHandle<()>>> {
    match get(handle, "a compiler")? {
        Object::Overdue(compiler) => Ok(compiler),
        _ => bail!("{handle:#x} is not the handle of a compiler"),
    }
}

/// Removes an object. A running call that uses it keeps it until the call ends.
pub fn remove(handle: u64) -> Result<Option<Object>> {
    get(handle, "anything")?;
    Ok(slots()[handle as u32 as usize].1.take())
}
