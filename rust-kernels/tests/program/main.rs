//! Tests plans and steps as the FFI receives them: valid ones run, and all others are rejected with a message.
#![cfg(unix)]
mod cache;
mod drafts;
mod lies;
mod load;
mod model;
mod mutations;
mod pieces;
mod turns;
