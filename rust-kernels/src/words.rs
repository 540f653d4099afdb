//! Reads little-endian 32-bit words. Plans and step inputs cross the FFI in this form.
use crate::bail;
use crate::error::Result;

/// The word that stands for "no operand".
pub const NONE: u32 = u32::MAX;

/// Reads a message's words in order and checks every read.
pub struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// # Errors
    /// The message ends too early. The same holds for all methods.
    pub fn u32(&mut self) -> Result<u32> {
        let Some((word, rest)) = self.rest.split_first_chunk() else { bail!("A message ends too early") };
        self.rest = rest;
        Ok(u32::from_le_bytes(*word))
    }

    /// Reads a u32 as a size.
    pub fn size(&mut self) -> Result<usize> {
        Ok(self.u32()? as usize)
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    pub fn f32(&mut self) -> Result<f32> {
        Ok(f32::from_bits(self.u32()?))
    }

    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_bits(self.u64()?))
    }

    /// Reads `n` words as i32.
    pub fn i32s(&mut self, n: usize) -> Result<Vec<i32>> {
        Ok(self.take(n)?.iter().map(|w| i32::from_le_bytes(*w)).collect())
    }

    /// Reads `n` words as u32.
    pub fn u32s(&mut self, n: usize) -> Result<Vec<u32>> {
        Ok(self.take(n)?.iter().map(|w| u32::from_le_bytes(*w)).collect())
    }

    /// Reads `n` words as f32.
    pub fn f32s(&mut self, n: usize) -> Result<Vec<f32>> {
        Ok(self.take(n)?.iter().map(|w| f32::from_le_bytes(*w)).collect())
    }

    /// Returns `n` words as they are stored in the message.
    pub fn take(&mut self, n: usize) -> Result<&'a [[u8; 4]]> {
        let (words, _) = self.rest.as_chunks::<4>();
        if words.len() < n {
            bail!("A message ends too early: {n} words wanted, {} left", words.len());
        }
        self.rest = &self.rest[4 * n..];
        Ok(&words[..n])
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
