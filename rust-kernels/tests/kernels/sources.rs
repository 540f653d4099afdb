//! Random tensors of every registered format, as in a GGUF file.
use super::support::Random;
use compy::formats::{Format, format};

const IQ1_M: u32 = 29;

/// Facts about a format beyond its layout.
struct Row {
    id: u32,
    /// Offsets of half floats in a block.
    halves: &'static [usize],
    /// Offset of an E8M0 exponent.
    exponent: Option<usize>,
    /// Offset of the mins' half float, and the largest number that multiplies it.
    min: Option<(usize, f64)>,
}

#[rustfmt::skip]
const ROWS: [Row; 25] = [
    Row { id: 2, halves: &[0], exponent: None, min: None },
    Row { id: 3, halves: &[0, 2], exponent: None, min: Some((2, 1.0)) },
    Row { id: 6, halves: &[0], exponent: None, min: None },
    Row { id: 7, halves: &[0, 2], exponent: None, min: Some((2, 1.0)) },
    Row { id: 8, halves: &[0], exponent: None, min: None },
    Row { id: 10, halves: &[80, 82], exponent: None, min: Some((82, 15.0)) },
    Row { id: 11, halves: &[108], exponent: None, min: None },
    Row { id: 12, halves: &[0, 2], exponent: None, min: Some((2, 63.0)) },
    Row { id: 13, halves: &[0, 2], exponent: None, min: Some((2, 63.0)) },
    Row { id: 14, halves: &[208], exponent: None, min: None },
    Row { id: 16, halves: &[0], exponent: None, min: None },
    Row { id: 17, halves: &[0], exponent: None, min: None },
    Row { id: 18, halves: &[0], exponent: None, min: None },
    Row { id: 19, halves: &[0], exponent: None, min: None },
    Row { id: 20, halves: &[0], exponent: None, min: None },
    Row { id: 21, halves: &[0], exponent: None, min: None },
    Row { id: 22, halves: &[0], exponent: None, min: None },
    Row { id: 23, halves: &[0], exponent: None, min: None },
    Row { id: 29, halves: &[], exponent: None, min: None },
    Row { id: 34, halves: &[52], exponent: None, min: None },
    Row { id: 35, halves: &[64], exponent: None, min: None },
    Row { id: 39, halves: &[], exponent: Some(0), min: None },
    Row { id: 40, halves: &[], exponent: None, min: None },
    Row { id: 41, halves: &[0], exponent: None, min: None },
    Row { id: 42, halves: &[0], exponent: None, min: None },
];

macro_rules! list_ids {
    (blocks: [$(($id:literal, $block:ident)),*], floats: [$(($fid:literal, $float:ident)),*]) => {
        /// The ids of the block formats and of the float formats.
        pub const BLOCK_FORMATS: &[u32] = &[$($id),*];
        pub const FLOAT_FORMATS: &[u32] = &[$($fid),*];
    };
}
compy::for_each_format!(list_ids);

fn row(id: u32) -> &'static Row {
    ROWS.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("format {id} has no row in tests/kernels/sources.rs"))
}

/// How the bytes of a tensor are drawn.
#[derive(Clone, Copy, Debug)]
pub enum Draw {
    /// Any codes, with scales of similar size.
    Plain,
    /// Any codes, with scales of any size: subnormal halves, zero, 65504, exponents up to f32's limits.
    Wide,
    /// The same byte everywhere except in the scales: 0x00, 0xff and such.
    Same(u8),
    /// All bytes zero.
    Zero,
}

pub const DRAWS: [Draw; 10] = [
    Draw::Plain,
    Draw::Same(0x00),
    Draw::Wide,
    Draw::Same(0xff),
    Draw::Plain,
    Draw::Same(0x80),
    Draw::Zero,
    Draw::Same(0x7f),
    Draw::Wide,
    Draw::Same(0x88),
];

/// A tensor of a format: rows of file blocks, and their exact values.
pub struct Source {
    pub layout: &'static Format,
    pub rows: usize,
    pub columns: usize,
    /// Bytes of a row.
    pub stride: usize,
    pub bytes: Vec<u8>,
    /// [rows][columns], from the plain dequantizer.
    pub values: Vec<f32>,
    /// [rows][columns / block]: an upper bound of each file block's min.
    mins: Vec<f64>,
}

impl Source {
    pub fn new(id: u32, rows: usize, columns: usize, draw: Draw, random: &mut Random) -> Self {
        let layout = format(id).expect("a registered format");
        let blocks = rows * columns / layout.block_columns;
        let mut bytes = vec![0; blocks * layout.block_bytes];
        let mut values = vec![0.0; rows * columns];
        let mut mins = Vec::new();
        for (block, out) in
            bytes.chunks_exact_mut(layout.block_bytes).zip(values.chunks_exact_mut(layout.block_columns))
        {
            match draw {
                Draw::Same(byte) => block.fill(byte),
                Draw::Zero => {}
                Draw::Plain | Draw::Wide => random.fill(block),
            }
            if layout.is_block() {
                set_scales(row(id), block, draw, random);
                mins.push(row(id).min.map_or(0.0, |(at, most)| f64::from(half(&block[at..]).abs()) * most));
            } else {
                set_float(layout.name, block, draw, random);
            }
            (layout.dequantize)(block, out);
        }
        let stride = columns / layout.block_columns * layout.block_bytes;
        Self { layout, rows, columns, stride, bytes, values, mins }
    }

    /// An upper bound of the terms of element (row, column): |value|, plus twice the min if the format has one,
    /// because |scale * code| <= |value| + |min|.
    pub fn term(&self, row: usize, column: usize) -> f64 {
        let at = row * self.columns + column;
        let min = self.mins.get(at / self.layout.block_columns).copied().unwrap_or(0.0);
        f64::from(self.values[at].abs()) + 2.0 * min
    }

    /// The panels of the tensor for `lanes` lanes. Rows beyond it are zero.
    pub fn pack(&self, lanes: usize) -> (Vec<u8>, usize) {
        let panel_bytes = (self.layout.panel_bytes)(self.columns, lanes);
        let panels = self.rows.div_ceil(lanes);
        let mut padded = self.bytes.clone();
        padded.resize(panels * lanes * self.stride, 0);
        let mut packed = vec![0xff; panels * panel_bytes];
        for (p, panel) in packed.chunks_exact_mut(panel_bytes).enumerate() {
            let src = &padded[p * lanes * self.stride..(p + 1) * lanes * self.stride];
            (self.layout.pack_panel)(src, self.stride, self.columns, lanes, panel);
        }
        (packed, panel_bytes)
    }
}

fn half(bytes: &[u8]) -> f32 {
    compy::half::f16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn set_scales(row: &Row, block: &mut [u8], draw: Draw, random: &mut Random) {
    for at in row.halves {
        let bits = match draw {
            Draw::Zero => 0,
            Draw::Wide => wide_half(random),
            _ => plain_half(random),
        };
        block[*at..at + 2].copy_from_slice(&bits.to_le_bytes());
    }
    if row.id == IQ1_M {
        // The half float is in the highest nibbles of four words.
        let bits = match draw {
            Draw::Zero => 0,
            Draw::Wide => wide_half(random),
            _ => plain_half(random),
        };
        for i in 0..4 {
            let byte = &mut block[49 + 2 * i];
            *byte = *byte & 15 | ((bits >> (4 * i) & 15) as u8) << 4;
        }
    }
    if let Some(at) = row.exponent {
        block[at] = match draw {
            Draw::Zero => 0,
            Draw::Wide => random.pick(&[0, 1, 2, 3, 60, 100, 128, 160]),
            _ => random.between(118, 124) as u8,
        };
    }
}

/// A half float from 2^-7 to 2^-4, of either sign.
fn plain_half(random: &mut Random) -> u16 {
    0x2000 + random.below(0xc00) as u16 + 0x8000 * random.below(2) as u16
}

/// Any finite half float, with the limits of the range more often than by chance.
fn wide_half(random: &mut Random) -> u16 {
    let magnitude =
        if random.below(4) == 0 { random.pick(&[0, 1, 0x3ff, 0x400, 0x7bff]) } else { random.below(0x7c00) as u16 };
    magnitude + 0x8000 * random.below(2) as u16
}

/// Makes an element of a float format finite, and of moderate size unless the draw is wide.
fn set_float(name: &str, element: &mut [u8], draw: Draw, random: &mut Random) {
    let x = match draw {
        Draw::Zero => 0.0,
        Draw::Same(_) => random.pick(&[1.0, -1.0]),
        Draw::Plain => random.unit(),
        Draw::Wide => half(&wide_half(random).to_le_bytes()),
    };
    match name {
        "F32" => element.copy_from_slice(&x.to_le_bytes()),
        "F16" => element.copy_from_slice(&compy::half::f32_to_f16(x).to_le_bytes()),
        "BF16" => element.copy_from_slice(&((x.to_bits() >> 16) as u16).to_le_bytes()),
        _ => panic!("float format {name} is not known to tests/kernels/sources.rs"),
    }
}

/// A row of activations: of similar size, of very different sizes, or at the limits of 8 bits and f32.
pub fn activations(columns: usize, random: &mut Random) -> Vec<f32> {
    let kind = random.below(10);
    let size = match kind {
        0 => 1e20,
        1 => 1e-30,
        2 => 1e-42,
        _ => 1.0,
    };
    (0..columns)
        .map(|k| match kind {
            3 => 0.0,
            4 => 1.0,
            5 => -1.0,
            6 => [1.0, -1.0][k % 2],
            7 => [0.0, 1.0][usize::from(random.below(32) == 0)],
            8 => random.unit() * 2f32.powi(random.below(41) as i32 - 20),
            _ => random.unit() * size,
        })
        .collect()
}
