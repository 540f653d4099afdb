//! Tests that a matrix that arrives in pieces equals the same matrix read from a file.
use compy::formats::format_named;
use compy::pool::Pool;
use compy::simd::Isa;
use compy::weights::{Piece, Source, Weights, packed_bytes};

const COLUMNS: usize = 256;
const ROWS: usize = 70;

fn source(name: &str) -> (Source, usize) {
    let format = format_named(name).expect("a format");
    let source = Source { format: format.id, columns: COLUMNS, rows: ROWS, offset: 0 };
    (source, COLUMNS / format.block_columns * format.block_bytes)
}

/// Returns the panels of the matrix, loaded in pieces. `ends` has the row behind each piece.
fn packed(name: &str, isa: Isa, bytes: &[u8], ends: &[usize]) -> Result<Vec<u8>, String> {
    let (source, row) = source(name);
    let mut pool = Pool::new(2).expect("threads");
    let size = packed_bytes(&source, isa).expect("a shape");
    let mut weights = Weights::new(1, size as u64).expect("memory");
    let mut first = 0;
    for &end in ends {
        let piece = Piece(&bytes[first * row..end * row]);
        weights.load_rows(0, first, &piece, &source, isa, &mut pool).map_err(|e| e.to_string())?;
        first = end;
    }
    let matrix = weights.matrix(0).map_err(|e| e.to_string())?;
    // SAFETY: the panels belong to the matrix, which outlives the copy.
    Ok(unsafe { std::slice::from_raw_parts(matrix.panels, size) }.to_vec())
}

#[test]
fn pieces_of_whole_panels_give_the_same_matrix() {
    for isa in Isa::available() {
        for name in ["Q4_0", "Q6_K", "F16"] {
            let bytes: Vec<u8> = (0..ROWS * source(name).1).map(|i| (i * 7 % 120) as u8).collect();
            let whole = packed(name, isa, &bytes, &[ROWS]).expect("a matrix");
            assert_eq!(packed(name, isa, &bytes, &[16, 48, 64, ROWS]).expect("a matrix"), whole, "{name}");
        }
    }
}

#[test]
fn load_rows_rejects_pieces_out_of_order_or_of_half_a_panel() {
    let isa = Isa::available()[0];
    let bytes = vec![1; ROWS * source("Q4_0").1];
    assert!(packed("Q4_0", isa, &bytes, &[3, ROWS]).expect_err("half a panel").contains("not a multiple"));
    assert!(packed("Q4_0", isa, &bytes, &[16]).expect_err("a part").contains("not a loaded matrix"));
    let (source, row) = source("Q4_0");
    let mut weights = Weights::new(1, 1 << 20).expect("memory");
    let mut load = |first: usize, bytes: &[u8]| {
        let mut pool = Pool::new(1).expect("a thread");
        weights.load_rows(0, first, &Piece(bytes), &source, isa, &mut pool).map_err(|e| e.to_string())
    };
    assert!(load(16, &bytes[..16 * row]).expect_err("not the first").contains("rows from 0"));
    assert!(load(0, &bytes[..16 * row + 1]).expect_err("half a row").contains("rows from 0"));
    assert_eq!(load(0, &bytes[..16 * row]), Ok(()));
    assert!(load(0, &bytes[..16 * row]).expect_err("the same again").contains("rows from 16"));
}

/// Returns the rows of a matrix that is loaded in pieces with factors. The parts of rows that share a factor end within
/// panels.
fn multiplied(isa: Isa, bytes: &[u8], ends: &[usize], factors: &[f32]) -> Result<Vec<f32>, String> {
    let (source, row) = source("NVFP4");
    let mut pool = Pool::new(2).expect("threads");
    let size = packed_bytes(&source, isa).expect("a shape");
    let mut weights = Weights::new(1, size as u64).expect("memory");
    weights.set_factors(0, factors.to_vec()).map_err(|e| e.to_string())?;
    let mut first = 0;
    for &end in ends {
        let piece = Piece(&bytes[first * row..end * row]);
        weights.load_rows(0, first, &piece, &source, isa, &mut pool).map_err(|e| e.to_string())?;
        first = end;
    }
    let matrix = weights.matrix(0).map_err(|e| e.to_string())?;
    let mut values = vec![0.0; ROWS * COLUMNS];
    for (r, out) in values.chunks_exact_mut(COLUMNS).enumerate() {
        let (panel, lane) = (r / isa.lanes(), r % isa.lanes());
        // SAFETY: the panel belongs to the matrix and has the row.
        unsafe {
            let panel = matrix.panels.add(panel * matrix.panel_bytes);
            matrix.format.row(isa, panel, COLUMNS, lane, out.as_mut_ptr());
        }
    }
    Ok(values)
}

#[test]
fn factors_multiply_the_rows_of_their_part() {
    let bytes: Vec<u8> = (0..ROWS * source("NVFP4").1).map(|i| (i * 7 % 120) as u8).collect();
    let factors = [0.37, -2.0, 1e-4, 3.0, 0.5];
    for isa in Isa::available() {
        let plain = multiplied(isa, &bytes, &[ROWS], &[1.0]).expect("a matrix");
        for ends in [&[ROWS][..], &[16, 48, 64, ROWS]] {
            let found = multiplied(isa, &bytes, ends, &factors).expect("a matrix");
            for (i, (y, x)) in found.iter().zip(&plain).enumerate() {
                let expected = f64::from(*x) * f64::from(factors[i / COLUMNS / (ROWS / factors.len())]);
                let far = (f64::from(*y) - expected).abs();
                assert!(far <= 1e-6 * expected.abs(), "{}: element {i} is {y}, not {expected}", isa.name());
            }
        }
    }
}

#[test]
fn set_factors_rejects_factors_that_do_not_fit() {
    let (isa, bytes) = (Isa::available()[0], vec![1; ROWS * source("NVFP4").1]);
    let refused = |factors: &[f32]| multiplied(isa, &bytes, &[ROWS], factors).expect_err("factors");
    assert!(refused(&[1.0; 3]).contains("cannot be multiplied by 3"));
    for factors in [&[][..], &[f32::NAN], &[1.0, f32::INFINITY]] {
        assert!(refused(factors).contains("finite"));
    }
    let mut weights = Weights::new(1, 1 << 20).expect("memory");
    assert!(weights.set_factors(1, vec![1.0]).is_err());
    let (source, row) = source("Q8_0");
    weights.set_factors(0, vec![2.0]).expect("factors");
    let mut pool = Pool::new(1).expect("a thread");
    let loaded = weights.load_rows(0, 0, &Piece(&vec![1; ROWS * row]), &source, isa, &mut pool);
    assert!(loaded.expect_err("another format").to_string().contains("Q8_0"));
}
