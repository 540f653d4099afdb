//! Reads little-endian words and bytes from a message.
use anyhow::{Result, bail};

pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// # Errors
    /// The message ends too early.
    pub fn u32(&mut self) -> Result<u32> {
        let Some((word, rest)) = self.rest.split_first_chunk() else { bail!("A message ends too early") };
        self.rest = rest;
        Ok(u32::from_le_bytes(*word))
    }

    /// # Errors
    /// The message ends too early.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else { bail!("A message ends too early") };
        self.rest = rest;
        Ok(bytes)
    }

    pub fn len(&self) -> usize {
        self.rest.len()
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }
}
