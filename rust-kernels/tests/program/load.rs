//! Tests that tensors with wrong shapes or bytes, and sizes that no machine has, are rejected.
use compy::model::Model;
use compy::simd::Isa;
use compy::weights::{Source, dequantize, packed_bytes};
use std::path::PathBuf;

const MXFP4: u32 = 39;
const F32: u32 = 0;

struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("compy-load-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a temporary file");
        Self(path)
    }

    /// Loads this file as tensor 0.
    fn load(&self, source: &Source, vector: bool) -> Result<(), String> {
        let model = Model::new(Isa::available()[0], 2, &[]).expect("threads");
        model.open(self.0.to_str().expect("UTF-8"), 1, 1 << 20).expect("the file");
        model.load(0, source, vector).map_err(|e| e.to_string())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn load_rejects_nan_scales_and_names_their_place() {
    let mut bytes = [120u8; 17 * 2 * 40];
    let matrix = Source { format: MXFP4, columns: 64, rows: 40, offset: 0 };
    assert_eq!(File::new("good", &bytes).load(&matrix, false), Ok(()));
    bytes[17 * (2 * 33 + 1)] = 255;
    let file = File::new("nan", &bytes);
    let message = "MXFP4's scale of row 33, column 32 is NaN: the file is damaged or badly converted";
    assert_eq!(file.load(&matrix, false), Err(message.into()));
    let vector = Source { format: MXFP4, columns: 40 * 64, rows: 1, offset: 0 };
    let message = "MXFP4's scale of row 0, column 2144 is NaN: the file is damaged or badly converted";
    assert_eq!(file.load(&vector, true), Err(message.into()));
}

#[test]
fn dequantize_returns_all_values_and_rejects_damaged_blocks() {
    let mut blocks = [0x21u8; 17 * 3];
    blocks[17..18].fill(128);
    let values = dequantize(MXFP4, &blocks).expect("whole blocks");
    // Codes 1 and 2 are 0.5 and 1. The second block's scale is 2.
    assert_eq!((values.len(), values[32], values[63]), (96, 1.0, 2.0));
    assert!(dequantize(MXFP4, &blocks[1..]).expect_err("a part of a block").to_string().contains("50 bytes"));
    blocks[34] = 255;
    assert!(dequantize(MXFP4, &blocks).expect_err("NaN").to_string().contains("row 0, column 64 is NaN"));
    assert!(dequantize(9999, &[]).is_err());
}

#[test]
fn load_rejects_sizes_beyond_all_memory() {
    for k in Isa::available() {
        let vast = Source { format: F32, columns: (1 << 31) - 1, rows: (1 << 31) - 1, offset: 0 };
        let error = packed_bytes(&vast, k).expect_err("no such memory").to_string();
        assert_eq!(error, "A tensor of 2147483647 x 2147483647 is too large for memory");
    }
}

#[test]
fn load_allocates_nothing_for_bytes_beyond_the_file() {
    let file = File::new("short", &[0; 64]);
    let vast = Source { format: F32, columns: (1 << 31) - 1, rows: 1, offset: 0 };
    let message = "8589934588 bytes at byte 0 end beyond the model file, which has 64";
    assert_eq!(file.load(&vast, true), Err(message.into()));
    let late = Source { format: F32, columns: 16, rows: 1, offset: u64::MAX - 3 };
    let message = "64 bytes at byte 18446744073709551612 end beyond the model file, which has 64";
    assert_eq!(file.load(&late, true), Err(message.into()));
    assert_eq!(file.load(&late, false), Err(message.into()));
}

#[test]
fn open_rejects_too_many_tensors() {
    let file = File::new("many", &[0; 64]);
    let model = Model::new(Isa::available()[0], 1, &[]).expect("threads");
    let error = model.open(file.0.to_str().expect("UTF-8"), u32::MAX as usize, 0).expect_err("too many").to_string();
    assert_eq!(error, "A model may have at most 1048576 tensors (got 4294967295)");
}
