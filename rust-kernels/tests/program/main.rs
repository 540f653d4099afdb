//! Plans and steps as they come over the FFI: good ones run, and whatever else comes is refused with a message.
#![cfg(unix)]
mod cache;
mod drafts;
mod lies;
mod load;
mod model;
mod mutations;
mod pieces;
mod turns;
