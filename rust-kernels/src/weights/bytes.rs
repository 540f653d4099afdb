//! The sources from which a tensor's bytes are read: a file, or a piece in memory.
use crate::bail;
use crate::error::{Error, Result};
use std::fs::File;

/// A source from which a tensor's bytes are read.
pub trait Bytes: Sync {
    /// # Errors
    /// The size is not available.
    fn size(&self) -> Result<u64>;
    /// # Errors
    /// Fewer bytes are available from `offset` on than `to` takes.
    fn read(&self, to: &mut [u8], offset: u64) -> Result<()>;
}

impl Bytes for File {
    fn size(&self) -> Result<u64> {
        let metadata = self.metadata();
        Ok(metadata.map_err(|e| Error::new(format!("Cannot read the model file's length: {e}")))?.len())
    }

    #[cfg(unix)]
    fn read(&self, to: &mut [u8], offset: u64) -> Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, to, offset)
            .map_err(|e| Error::new(format!("Cannot read {} bytes at byte {offset} of the model file: {e}", to.len())))
    }

    #[cfg(not(unix))]
    fn read(&self, _: &mut [u8], _: u64) -> Result<()> {
        bail!("This platform cannot read files")
    }
}

/// A piece of a tensor's bytes in memory, which the caller has already read.
pub struct Piece<'a>(pub &'a [u8]);

impl Bytes for Piece<'_> {
    fn size(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, to: &mut [u8], offset: u64) -> Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)?.get(..to.len()));
        let Some(from) = from else { bail!("The piece of {} bytes ends within a tensor's rows", self.0.len()) };
        to.copy_from_slice(from);
        Ok(())
    }
}
