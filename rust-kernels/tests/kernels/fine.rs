//! Tests activations in 8-bit blocks of two planes.
use super::sources::activations;
use super::support::{Guarded, Random, on_every_isa, share};
use compy::formats::BLOCK;
use compy::kernels::norm::Outputs;
use compy::kernels::quant_rows::{FineRows, QuantRows, row_bytes};
use compy::ops::rms_norm::NormRow;
use compy::simd::Isa;

/// Returns the values that block b of a row in one plane stands for.
fn restored(rows: &QuantRows, row: usize, b: usize) -> [f64; BLOCK] {
    let (tile, slot) = (row / rows.tile, row % rows.tile);
    // SAFETY: the row is within the matrix.
    let (scale, codes) = unsafe { (*rows.meta(tile, b, slot), rows.block(tile, b, slot)) };
    codes.map(|code| f64::from(scale) * f64::from(code))
}

fn case(k: Isa, random: &mut Random, [input, weight, floats, planes]: &mut [Guarded; 4]) {
    let (columns, count) = (BLOCK * random.between(1, 8), random.between(1, 40));
    let bytes = FineRows::planes(count, 16).unwrap() * row_bytes(columns);
    let fine = FineRows::new(planes.tail::<u8>(bytes).as_mut_ptr(), columns, count, k);
    let few = 2 * count <= k.tile();
    assert!(
        fine.rest >= count && (few == (fine.rest + count <= fine.rows.tile)),
        "{count} rows, rests at {}",
        fine.rest
    );
    let ones = vec![1.0; columns];
    let y = floats.tail::<f32>(columns * count);
    let outputs = Outputs { float: y.as_mut_ptr(), float_stride: columns, quant: None, fine: Some(fine) };
    for row in 0..count {
        let mut x = activations(columns, random);
        if random.below(8) == 0 {
            x[..BLOCK].fill(0.0);
        }
        // SAFETY: inputs have the columns, and outputs the rows. Because there is a float output, no scratch memory is
        // needed.
        unsafe {
            let (x, ones) = (input.copy(&x).as_ptr(), weight.copy(&ones).as_ptr());
            k.run(NormRow {
                x,
                weight: ones,
                columns,
                eps: 1e-6,
                scale: 1.0,
                out: &outputs,
                row,
                scratch: std::ptr::null_mut(),
            });
        }
    }
    for (row, y) in y.chunks_exact(columns).enumerate() {
        for (b, y) in y.chunks_exact(BLOCK).enumerate() {
            let top = y.iter().fold(0.0f64, |top, y| top.max(f64::from(y.abs())));
            let planes = [restored(&fine.rows, row, b), restored(&fine.rows, fine.rest + row, b)];
            for (i, y) in y.iter().enumerate() {
                let off = (f64::from(*y) - planes[0][i] - planes[1][i]).abs();
                // The error is half a step of the second plane, whose largest value is half a step of the first. A
                // scale below f32's normal range counts as zero.
                let limit = (top / 127.0 / 2.0 / 127.0 / 2.0 * 1.001).max(127.0 * f64::from(f32::MIN_POSITIVE));
                assert!(off <= limit, "{} row {row} of {count}: {y} is {off:e} off", k.name());
            }
        }
    }
}

#[test]
fn two_planes_hold_fifteen_bits() {
    on_every_isa("two planes", |k| {
        let mut random = Random::new(1);
        let mut buffers = [(); 4].map(|()| Guarded::new(1 << 16));
        let cases = share(500);
        (0..cases).for_each(|_| case(k, &mut random, &mut buffers));
        cases
    });
}
