//! Tests matrix products: they agree with sums in f64, and a result is bit-identical whatever else is in the call.
use super::sources::{BLOCK_FORMATS, DRAWS, FLOAT_FORMATS, Source, activations};
use super::support::{Guarded, ROUNDING, Random, assert_near, assert_same_bits, on_every_isa, share};
use compy::formats::BLOCK;
use compy::formats::{BlockKernels, FloatKernels, FormatKernels, format};
use compy::kernels::float_gemm::FloatRows;
use compy::kernels::gemm::{Epilogue, Gemm, corrections_len};
use compy::kernels::quant_rows::{QuantRows, row_bytes, tile_rows};
use compy::ops::quantize::QuantizeRow;
use compy::simd::Isa;

const MOST_TOKENS: usize = 64;
const MOST_ROWS: usize = 70;

/// Memory for each operand, which ends at a guard page.
struct Buffers {
    panels: Guarded,
    x: Guarded,
    corrections: Guarded,
    bias: Guarded,
    out: Guarded,
}

/// One call: tokens from..m of m tokens, times `rows` rows of W from row first_panel * lanes on.
#[derive(Clone, Copy, Debug)]
struct Call {
    from: usize,
    m: usize,
    rows: usize,
    first_panel: usize,
    with_bias: bool,
    epilogue: Epilogue,
    /// Number of unused floats between the rows of the output.
    gap: usize,
}

enum Product<'a> {
    Block(&'a BlockKernels),
    Float(&'a FloatKernels),
}

/// A random weight matrix and its activations, bias and previous output.
struct Setting<'a> {
    k: Isa,
    product: Product<'a>,
    source: Source,
    packed: Vec<u8>,
    panel_bytes: usize,
    x: Vec<Vec<f32>>,
    bias: Vec<f32>,
    held: Vec<f32>,
}

impl<'a> Setting<'a> {
    fn new(k: Isa, product: Product<'a>, source: Source, tokens: usize, random: &mut Random) -> Self {
        let (packed, panel_bytes) = source.pack(k.lanes());
        let x = (0..tokens).map(|_| activations(source.columns, random)).collect();
        let bias = (0..source.rows).map(|_| random.unit()).collect();
        let held = (0..64).map(|_| random.unit()).collect();
        Self { k, product, source, packed, panel_bytes, x, bias, held }
    }

    fn held(&self, token: usize, row: usize) -> f32 {
        self.held[(7 * token + row) % self.held.len()]
    }

    /// Runs the call on guarded copies of its operands. Returns [m - from][rows], with NaN where the call must not
    /// write.
    fn run(&self, call: &Call, buffers: &mut Buffers) -> Vec<f32> {
        let lanes = self.k.lanes();
        let (first, ldo) = (call.first_panel * lanes, call.rows + call.gap);
        let bytes = call.first_panel * self.panel_bytes..call.rows.div_ceil(lanes) * self.panel_bytes;
        let panels = buffers.panels.copy(&self.packed[bytes]);
        let bias = buffers.bias.copy(&self.bias[..call.rows]);
        let out = buffers.out.tail::<f32>((call.m - call.from - 1) * ldo + call.rows);
        for (t, row) in (call.from..call.m).zip(out.chunks_mut(ldo)) {
            for r in first..call.rows {
                row[r] = self.held(t, r);
            }
        }
        let args = Gemm {
            panels: panels.as_ptr(),
            panel_bytes: self.panel_bytes,
            rows: call.rows - first,
            columns: self.source.columns,
            from: call.from,
            to: call.m,
            out: out[first..].as_mut_ptr(),
            ldo,
            bias: if call.with_bias { bias[first..].as_ptr() } else { std::ptr::null() },
            epilogue: call.epilogue,
        };
        self.multiply(&args, &mut buffers.x, &mut buffers.corrections);
        let gaps_untouched = out.iter().enumerate().all(|(i, y)| i % ldo < call.rows || y.to_bits() == u32::MAX);
        assert!(gaps_untouched, "{} wrote beyond its rows", self.name(call));
        out.chunks(ldo).flat_map(|row| row[..call.rows].to_vec()).collect()
    }

    fn multiply(&self, args: &Gemm, x: &mut Guarded, corrections: &mut Guarded) {
        match self.product {
            Product::Block(kernels) => {
                let quant = quantised(self.k, &self.x[..args.to], x);
                let corrections = corrections.tail(corrections_len(args.to, args.columns, self.k.tile())).as_mut_ptr();
                // SAFETY: all operands have the sizes that `args` states, and the CPU has the instructions.
                unsafe {
                    (kernels.prepare)(self.k, &quant, args.to, corrections);
                    (kernels.gemm)(self.k, args, &quant, corrections);
                }
            }
            Product::Float(kernels) => {
                let rows = x.copy(&self.x[..args.to].concat());
                let rows = FloatRows { base: rows.as_mut_ptr(), stride: args.columns };
                // SAFETY: all operands have the sizes that `args` states, and the CPU has the instructions.
                unsafe { (kernels.gemm)(self.k, args, &rows) }
            }
        }
    }

    /// Returns the activations as the product reads them: exact, or rounded to 8 bits.
    fn seen(&self, buffer: &mut Guarded) -> Vec<Vec<f64>> {
        let tokens = self.x.len();
        if matches!(self.product, Product::Float(_)) {
            return self.x.iter().map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect();
        }
        let quant = quantised(self.k, &self.x, buffer);
        let value = |t: usize, c: usize| {
            let (tile, slot) = (t / quant.tile, t % quant.tile);
            // SAFETY: the row and the block are within the matrix.
            unsafe {
                f64::from(*quant.meta(tile, c / BLOCK, slot)) * f64::from(quant.block(tile, c / BLOCK, slot)[c % BLOCK])
            }
        };
        (0..tokens).map(|t| (0..self.source.columns).map(|c| value(t, c)).collect()).collect()
    }

    /// Checks [tokens][rows] results against sums in f64. Each of n terms (a block, or a column of floats) is rounded a
    /// few times, and so is their running sum. So n + 8 roundings of the sum of the terms' sizes bound the error. Terms
    /// may be subnormal; then a rounding is 2^-150 whatever the size.
    fn check(&self, got: &[f32], buffer: &mut Guarded) {
        let (rows, columns) = (self.source.rows, self.source.columns);
        let terms = if self.source.layout.is_block() { columns / BLOCK } else { columns };
        let size: Vec<f64> = (0..rows * columns).map(|i| self.source.term(i / columns, i % columns)).collect();
        for (t, x) in self.seen(buffer).iter().enumerate() {
            for r in 0..rows {
                let of_row = r * columns..(r + 1) * columns;
                let want: f64 = x.iter().zip(&self.source.values[of_row.clone()]).map(|(x, w)| x * f64::from(*w)).sum();
                let sizes: f64 = x.iter().zip(&size[of_row]).map(|(x, size)| x.abs() * size).sum();
                let limit = (terms + 8) as f64 * (ROUNDING * sizes + 2f64.powi(-145));
                assert_near(got[t * rows + r], want, limit, || {
                    format!("{} on {}, {columns} columns, token {t}, row {r}", self.source.layout.name, self.k.name())
                });
            }
        }
    }

    /// Returns the expected output of a call, computed from the sums of all tokens and rows.
    fn expected(&self, call: &Call, sums: &[f32]) -> Vec<f32> {
        let mut want = Vec::new();
        for t in call.from..call.m {
            for r in 0..call.rows {
                let mut y = sums[t * self.source.rows + r];
                if call.with_bias {
                    y += self.bias[r];
                }
                if let Epilogue::Add(times) = call.epilogue {
                    // The scalar set rounds twice in a multiply-add.
                    let scalar = self.k.name() == "scalar";
                    let held = self.held(t, r);
                    y = if scalar { times * y + held } else { times.mul_add(y, held) };
                }
                want.push(if r < call.first_panel * self.k.lanes() { f32::from_bits(u32::MAX) } else { y });
            }
        }
        want
    }

    fn name(&self, call: &Call) -> String {
        format!("{} on {}, {} columns, {call:?}", self.source.layout.name, self.k.name(), self.source.columns)
    }

    /// Runs a call with all tokens and rows, and checks the results.
    fn all(&self, buffers: &mut Buffers) -> Vec<f32> {
        let (m, rows) = (self.x.len(), self.source.rows);
        let call = Call { from: 0, m, rows, first_panel: 0, with_bias: false, epilogue: Epilogue::Store, gap: 0 };
        let sums = self.run(&call, buffers);
        self.check(&sums, &mut buffers.x);
        sums
    }
}

/// Returns the first tokens as quantized rows whose memory ends at a guard page.
fn quantised(k: Isa, x: &[Vec<f32>], buffer: &mut Guarded) -> QuantRows {
    let columns = x[0].len();
    let tile = tile_rows(x.len(), k.tile());
    let base = buffer.tail::<u8>(x.len().next_multiple_of(tile) * row_bytes(columns)).as_mut_ptr();
    let quant = QuantRows { base, columns, tile, paired: k.row_pairs() };
    for (t, row) in x.iter().enumerate() {
        // SAFETY: the buffer has room for every tile.
        unsafe { k.run(QuantizeRow { x: row.as_ptr(), out: &quant, row: t }) }
    }
    quant
}

fn product(kernels: &FormatKernels) -> Product<'_> {
    match kernels {
        FormatKernels::Block(kernels) => Product::Block(kernels),
        FormatKernels::Float(kernels) => Product::Float(kernels),
    }
}

/// Makes random calls on `rounds` weights of a format: every m from 1 to 40, with five row counts each. Returns the
/// number of calls.
fn calls_of_format(k: Isa, id: u32, buffers: &mut Buffers) -> usize {
    let kernels = &format(id).expect("registered").kernels;
    let mut random = Random::new(u64::from(id));
    let (rounds, mut cases) = (share(12), 0);
    for round in 0..rounds {
        let columns = match format(id).expect("registered").block_columns {
            1 => random.between(1, 300),
            32 => 32 * random.between(1, 17),
            block => block * random.between(1, 3),
        };
        let source = Source::new(id, MOST_ROWS, columns, DRAWS[round % DRAWS.len()], &mut random);
        let setting = Setting::new(k, product(kernels), source, MOST_TOKENS, &mut random);
        let sums = setting.all(buffers);
        for m in 1..=MOST_TOKENS {
            for i in 0..5 {
                // 3 and 70 have no common factor, so every row count occurs.
                let rows = 3 * (5 * (40 * round + m) + i) % MOST_ROWS + 1;
                let call = Call {
                    from: random.below(m.div_ceil(k.tile())) * k.tile(),
                    m,
                    rows,
                    first_panel: random.below(rows.div_ceil(k.lanes())),
                    with_bias: random.below(2) == 0,
                    epilogue: random.pick(&[Epilogue::Store, Epilogue::Add(1.0), Epilogue::Add(-0.22)]),
                    gap: random.below(4),
                };
                let got = setting.run(&call, buffers);
                assert_same_bits(&got, &setting.expected(&call, &sums), || setting.name(&call));
                cases += 1;
            }
        }
    }
    cases
}

fn buffers() -> Buffers {
    let new = || Guarded::new(1 << 16);
    Buffers { panels: new(), x: new(), corrections: new(), bias: new(), out: new() }
}

#[test]
fn block_products_match_f64_and_are_independent_of_the_batch() {
    on_every_isa("gemm of block formats", |k| {
        let mut buffers = buffers();
        BLOCK_FORMATS.iter().map(|id| calls_of_format(k, *id, &mut buffers)).sum()
    });
}

#[test]
fn float_products_match_f64_and_are_independent_of_the_batch() {
    on_every_isa("gemm of float formats", |k| {
        let mut buffers = buffers();
        FLOAT_FORMATS.iter().map(|id| calls_of_format(k, *id, &mut buffers)).sum()
    });
}

/// The rows are so long that the kernels split the tokens into several passes over the panels.
#[test]
fn block_products_are_the_same_in_several_passes() {
    on_every_isa("gemm in passes", |k| {
        let mut buffers = buffers();
        let mut random = Random::new(5);
        let ids = BLOCK_FORMATS.iter().chain(FLOAT_FORMATS);
        for id in ids.clone() {
            let kernels = &format(*id).expect("registered").kernels;
            let source = Source::new(*id, k.lanes() + 1, 15_872, DRAWS[0], &mut random);
            let setting = Setting::new(k, product(kernels), source, MOST_TOKENS, &mut random);
            let sums = setting.all(&mut buffers);
            let (rows, epilogue) = (setting.source.rows, Epilogue::Store);
            let call = Call { from: 0, m: 1, rows, first_panel: 0, with_bias: false, epilogue, gap: 0 };
            assert_same_bits(&setting.run(&call, &mut buffers), &sums[..rows], || setting.name(&call));
        }
        2 * ids.count()
    });
}

/// Pairs of instruction sets that differ only in their byte products. The first set of each pair extends the second.
const EXTENSIONS: [[&str; 2]; 5] = [
    ["avx512-amx", "avx512-vnni"],
    ["avx512-vnni", "avx512"],
    ["avx2-vnni", "avx2"],
    ["neon-i8mm", "neon-dotprod"],
    ["neon-dotprod", "neon"],
];

#[test]
fn byte_products_are_bit_identical_across_instruction_sets() {
    let mut random = Random::new(7);
    let mut buffers = buffers();
    for sets in EXTENSIONS {
        let [Ok(extension), Ok(base)] = sets.map(Isa::detect) else { continue };
        for id in BLOCK_FORMATS {
            let kernels = &format(*id).expect("registered").kernels;
            let source = Source::new(*id, MOST_ROWS, 768, DRAWS[0], &mut random);
            let mut setting = Setting::new(base, product(kernels), source, MOST_TOKENS, &mut random);
            let sums = setting.all(&mut buffers);
            setting.k = extension;
            for m in (1..20).chain([24, 31, 32, 47, 48, MOST_TOKENS]) {
                let (rows, epilogue) = (MOST_ROWS, Epilogue::Store);
                let call = Call { from: 0, m, rows, first_panel: 0, with_bias: false, epilogue, gap: 0 };
                assert_same_bits(&setting.run(&call, &mut buffers), &sums[..m * rows], || setting.name(&call));
            }
        }
    }
}

/// A NaN token affects its own row of the result and no other.
#[test]
fn nan_tokens_affect_only_their_own_rows() {
    on_every_isa("gemm of NaN", |k| {
        let mut buffers = buffers();
        let mut random = Random::new(6);
        let (m, rows) = (MOST_TOKENS, k.lanes() + 3);
        for id in BLOCK_FORMATS.iter().chain(FLOAT_FORMATS) {
            let kernels = &format(*id).expect("registered").kernels;
            let source = Source::new(*id, rows, 512, DRAWS[0], &mut random);
            let mut setting = Setting::new(k, product(kernels), source, m, &mut random);
            let clean = setting.all(&mut buffers);
            let bad = random.below(m);
            setting.x[bad][random.below(512)] = random.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
            let call = Call { from: 0, m, rows, first_panel: 0, with_bias: false, epilogue: Epilogue::Store, gap: 0 };
            let got = setting.run(&call, &mut buffers);
            for t in 0..m {
                let row = t * rows..(t + 1) * rows;
                if t == bad {
                    assert!(got[row].iter().all(|y| !y.is_finite()), "{}: token {t}", setting.name(&call));
                } else {
                    assert_same_bits(&got[row.clone()], &clean[row], || setting.name(&call));
                }
            }
        }
        BLOCK_FORMATS.len() + FLOAT_FORMATS.len()
    });
}
