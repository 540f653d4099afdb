//! Tests the quantization of activations to 8-bit blocks.
use super::sources::activations;
use super::support::{Guarded, Random, on_every_isa, share};
use compy::formats::BLOCK;
use compy::kernels::quant_rows::{QuantRows, row_bytes, tile_rows};
use compy::ops::quantize::QuantizeRow;
use compy::simd::Isa;

/// Checks the scale, the codes and the sums of block b of a row.
fn check_block(x: &[f32], quant: &QuantRows, row: usize, b: usize) {
    let (tile, slot) = (row / quant.tile, row % quant.tile);
    // SAFETY: the row and the block are within the matrix.
    let (scale, codes, sums) = unsafe {
        let meta = quant.meta(tile, b, slot);
        let sums = [*meta.add(quant.tile).cast::<i32>(), *meta.add(2 * quant.tile).cast::<i32>()];
        (*meta, quant.block(tile, b, slot), sums)
    };
    let halves = codes.split_at(BLOCK / 2);
    assert_eq!(sums, [halves.0, halves.1].map(|half| half.iter().map(|c| i32::from(*c)).sum()), "sums of {codes:?}");
    if x.iter().any(|x| !x.is_finite()) {
        assert!(scale.is_nan() && codes.iter().all(|c| *c == 0), "{x:?} became {scale} * {codes:?}");
        return;
    }
    let top = x.iter().fold(0.0f32, |top, x| top.max(x.abs()));
    assert_eq!(scale, if top / 127.0 > f32::MIN_POSITIVE { top / 127.0 } else { 0.0 }, "scale of {x:?}");
    assert!(scale == 0.0 || codes.iter().any(|c| c.abs() == 127), "{x:?} does not use the range: {codes:?}");
    for (x, code) in x.iter().zip(codes) {
        let off = (f64::from(*x) - f64::from(scale) * f64::from(code)).abs();
        // The limit is half a step plus the rounding of x / scale, which is at most 127.
        let limit = if scale == 0.0 { f64::from(top) } else { f64::from(scale) * 0.500_02 };
        assert!(off <= limit && code != -128, "{x:e} became {code} * {scale:e}");
    }
}

fn rows(k: Isa, seed: u64, buffers: &mut [Guarded; 2]) -> usize {
    let mut random = Random::new(seed);
    let columns = BLOCK * random.between(1, 16);
    let count = random.between(1, 20);
    let [input, output] = buffers;
    let tile = tile_rows(count, k.tile());
    let bytes = count.next_multiple_of(tile) * row_bytes(columns);
    let quant = QuantRows { base: output.tail::<u8>(bytes).as_mut_ptr(), columns, tile, paired: k.row_pairs() };
    let mut all = Vec::new();
    for row in 0..count {
        let mut x = activations(columns, &mut random);
        match random.below(8) {
            0 => x.iter_mut().for_each(|x| *x *= 3e38),
            1 => x[random.below(columns)] = random.pick(&[f32::MAX, f32::MIN, f32::INFINITY, f32::NAN, 1e-45]),
            _ => {}
        }
        // SAFETY: the row has the columns, the output the row.
        unsafe { k.run(QuantizeRow { x: input.copy(&x).as_ptr(), out: &quant, row }) }
        all.push(x);
    }
    for (row, x) in all.iter().enumerate() {
        for (b, x) in x.chunks_exact(BLOCK).enumerate() {
            check_block(x, &quant, row, b);
        }
    }
    count
}

#[test]
fn quantize_row_is_within_half_a_step_and_stores_sums() {
    on_every_isa("quantize", |k| {
        let mut buffers = [Guarded::new(1 << 14), Guarded::new(1 << 16)];
        (0..share(2000)).map(|seed| rows(k, seed as u64, &mut buffers)).sum()
    });
}

/// NaN is put in each single lane, because no order of lanes may hide it.
#[test]
fn quantize_row_detects_nan_in_every_column() {
    on_every_isa("quantize of NaN", |k| {
        let mut buffer = Guarded::new(row_bytes(BLOCK));
        for i in 0..BLOCK {
            let mut x = [1.0; BLOCK];
            x[i] = f32::NAN;
            let base = buffer.tail::<u8>(row_bytes(BLOCK)).as_mut_ptr();
            let quant = QuantRows { base, columns: BLOCK, tile: 1, paired: false };
            // SAFETY: there is one row of one block.
            unsafe { k.run(QuantizeRow { x: x.as_ptr(), out: &quant, row: 0 }) }
            check_block(&x, &quant, 0, 0);
        }
        BLOCK
    });
}
