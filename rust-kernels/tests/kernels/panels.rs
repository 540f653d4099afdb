//! Tests that rows packed into panels can be read back.
use super::sources::{BLOCK_FORMATS, DRAWS, FLOAT_FORMATS, Source};
use super::support::{Guarded, Random, on_every_isa, share};
use compy::formats::{FormatKernels, format};
use compy::simd::Isa;

/// Checks that a row read from a panel equals the plain dequantizer's row exactly, except for the sign of 0. Returns
/// the number of rows.
fn round_trips(k: Isa, id: u32, kernels: &FormatKernels, buffers: &mut [Guarded; 2]) -> usize {
    let mut random = Random::new(u64::from(id) + 1000);
    let rounds = share(60);
    for round in 0..rounds {
        let draw = DRAWS[round % DRAWS.len()];
        let columns = match format(id).expect("registered").block_columns {
            1 => random.between(1, 300),
            block => block * random.between(1, 768 / block),
        };
        let source = Source::new(id, k.lanes(), columns, draw, &mut random);
        let (packed, panel_bytes) = source.pack(k.lanes());
        assert_eq!(panel_bytes % 64, 0);
        let [panel, out] = &mut *buffers;
        let panel = panel.copy(&packed);
        for lane in 0..k.lanes() {
            let out = out.tail::<f32>(columns);
            let (panel, to) = (panel.as_ptr(), out.as_mut_ptr());
            // SAFETY: the panel is whole, `out` has room for the columns, and the CPU has the instructions.
            match kernels {
                FormatKernels::Block(b) => unsafe { (b.row)(k, panel, columns, lane, to) },
                FormatKernels::Float(f) => unsafe { (f.row)(k, panel, columns, lane, to) },
            }
            for (column, (got, want)) in out.iter().zip(&source.values[lane * columns..]).enumerate() {
                let name = source.layout.name;
                assert_eq!(got, want, "{name} on {}, {draw:?}, lane {lane}, column {column} of {columns}", k.name());
            }
        }
    }
    rounds * k.lanes()
}

#[test]
fn panels_return_the_packed_rows() {
    on_every_isa("panels", |k| {
        let mut buffers = [Guarded::new(1 << 16), Guarded::new(1 << 12)];
        let ids = BLOCK_FORMATS.iter().chain(FLOAT_FORMATS);
        ids.map(|id| round_trips(k, *id, &format(*id).expect("registered").kernels, &mut buffers)).sum()
    });
}

#[test]
fn panels_are_little_larger_than_the_file() {
    for id in BLOCK_FORMATS {
        let layout = format(*id).expect("registered");
        for lanes in [4, 8, 16] {
            let file = 2048 / layout.block_columns * layout.block_bytes * lanes;
            let panel = (layout.panel_bytes)(2048, lanes);
            let ratio = panel as f64 / file as f64;
            assert!(ratio <= 1.08, "{}: {ratio:.3} times the file for {lanes} lanes", layout.name);
        }
    }
}
