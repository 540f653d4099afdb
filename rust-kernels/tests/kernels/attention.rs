//! Tests attention over a paged cache: it agrees with f64, and a row's result is bit-identical whatever else is in its
//! tile.
use super::kv::key_code;
use super::support::{Guarded, ROUNDING, Random, assert_near, assert_same_bits, hadamard, on_every_isa, share};
use compy::half::{bf16_to_f32, f16_to_f32};
use compy::kernels::kv::{KV_BLOCK, KvType, MAX_ROWS, int16, q4_0, q8_0};
use compy::ops::attention::{AttentionTile, CHUNK, Part, attend, scratch_len};
use compy::simd::Isa;

const HEAD_DIMS: [usize; 7] = [32, 48, 64, 80, 96, 128, 256];
/// Numbers of positions to which the last row attends, around the edges of blocks and of chunks of 128.
const SEEN: [usize; 16] = [1, 2, 31, 32, 33, 64, 65, 127, 128, 129, 160, 255, 256, 257, 290, 390];

/// A cache of one layer with two KV heads, which holds one sequence. Unused slots are NaN.
struct Cache {
    kind: KvType,
    lanes: usize,
    pairs_together: bool,
    head_dim: usize,
    head: usize,
    block_table: Vec<i32>,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Cache {
    const HEADS: usize = 2;

    fn new(k: Isa, kind: KvType, head_dim: usize, seen: usize, random: &mut Random) -> Self {
        Self::of(k, kind, head_dim, seen, random, |random| [2.0, 1.0].map(|size| random.unit() * size))
    }

    /// Returns a cache. `draw` makes its keys and values, one dimension at a time.
    fn of(
        k: Isa,
        kind: KvType,
        head_dim: usize,
        seen: usize,
        random: &mut Random,
        draw: impl Fn(&mut Random) -> [f32; 2],
    ) -> Self {
        let blocks = seen.div_ceil(KV_BLOCK);
        let mut block_table: Vec<i32> = (0..blocks as i32 + 3).collect();
        for i in (1..block_table.len()).rev() {
            block_table.swap(i, random.below(i + 1));
        }
        let size = kind.block_bytes(head_dim).map(|bytes| block_table.len() * Self::HEADS * bytes);
        block_table.truncate(blocks);
        let mut cache = Self {
            kind,
            lanes: k.lanes(),
            pairs_together: k.pairs_together(),
            head_dim,
            head: random.below(Self::HEADS),
            block_table,
            keys: vec![0xff; size[0]],
            values: vec![0xff; size[1]],
        };
        for position in 0..seen {
            let (key, value): (Vec<f32>, Vec<f32>) = (0..head_dim).map(|_| draw(random).into()).unzip();
            let (block, slot) = ([0, 1].map(|i| cache.block(i, position)), position % KV_BLOCK);
            // SAFETY: each head has its own block.
            unsafe {
                let append = kind.appenders();
                (append.key)(k, key.as_ptr(), head_dim, cache.keys[block[0]..].as_mut_ptr(), slot);
                (append.value)(k, value.as_ptr(), head_dim, cache.values[block[1]..].as_mut_ptr(), slot);
            }
        }
        cache
    }

    fn block_stride(&self) -> [usize; 2] {
        self.head_offset_of(Self::HEADS)
    }

    /// Returns a head's offset in bytes in a block of keys, and in a block of values.
    fn head_offset_of(&self, head: usize) -> [usize; 2] {
        self.kind.block_bytes(self.head_dim).map(|bytes| head * bytes)
    }

    /// Returns where the head's keys (0) or values (1) start in a position's block.
    fn block(&self, i: usize, position: usize) -> usize {
        self.block_table[position / KV_BLOCK] as usize * self.block_stride()[i] + self.head_offset_of(self.head)[i]
    }

    fn key(&self, position: usize, d: usize) -> f64 {
        let (slot, block) = (position % KV_BLOCK, &self.keys[self.block(0, position)..]);
        match self.kind {
            KvType::Int16 => {
                let at = int16::key_index(self.lanes, self.pairs_together, self.head_dim, d, slot);
                code(block, at) * self.scale(block, slot)
            }
            KvType::Q8_0 => {
                let code = block[q8_0::key_index(self.lanes, self.head_dim, d, slot)];
                (f64::from(code) - 128.0) * half(block, q8_0::scale_index(self.head_dim, d, slot))
            }
            KvType::Q4_0 => {
                let scale = half(block, q4_0::scale_index(q4_0::keys::KEY_BITS, self.head_dim, d, slot));
                key_code(block, self.lanes, self.head_dim, d, slot) * scale
            }
        }
    }

    fn value(&self, position: usize, d: usize) -> f64 {
        let (slot, block) = (position % KV_BLOCK, &self.values[self.block(1, position)..]);
        match self.kind {
            KvType::Int16 => {
                let at = int16::value_index(self.lanes, self.pairs_together, d, slot);
                code(block, at) * self.scale(block, slot)
            }
            KvType::Q8_0 => {
                let code = block[q8_0::value_index(self.lanes, d, slot)].cast_signed();
                f64::from(code) * half(block, q8_0::scale_index(self.head_dim, d, slot))
            }
            KvType::Q4_0 => {
                let two = block[q4_0::value_index(self.lanes, d, slot)];
                let code = if (d / self.lanes).is_multiple_of(2) { two & 15 } else { two >> 4 };
                (f64::from(code) - 8.0) * half(block, value_scale_index(self.head_dim, d, slot))
            }
        }
    }

    /// Returns the scale of a slot in a block of 16-bit codes.
    fn scale(&self, block: &[u8], slot: usize) -> f64 {
        f64::from(bf16_to_f32(word(block, int16::scale_index(self.head_dim, slot))))
    }

    /// Returns a query as the kernels round it, rotated if the cache's heads are.
    fn query(&self, q: &[f32]) -> Vec<f64> {
        let rounded = |q: &[f32]| -> Vec<f64> {
            let top = q.iter().fold(0f32, |top, x| top.max(x.abs()));
            let code = |x: &f32| f64::from((x * (127.0 / top)).round_ties_even());
            q.iter().map(|x| code(x) * f64::from(top / 127.0)).collect()
        };
        match self.kind {
            KvType::Int16 => q.iter().map(|x| f64::from(*x)).collect(),
            KvType::Q8_0 => q.chunks(q8_0::SCALED).flat_map(rounded).collect(),
            KvType::Q4_0 => {
                let mut q = q.to_vec();
                q.resize(q4_0::padded(q.len()), 0.0);
                hadamard(&mut q);
                q.chunks(q4_0::SCALED).flat_map(rounded).collect()
            }
        }
    }

    /// Returns the attention of one query in f64, and an upper bound of f32's error, for each dimension.
    fn reference(
        &self,
        q: &[f32],
        [position, end]: [usize; 2],
        (window, chunked): (usize, bool),
        [scale, softcap]: [f32; 2],
        sink: Option<f32>,
        (chosen, length): (&[f32], usize),
    ) -> Vec<(f64, f64)> {
        let (step, q, mut doubt) = (self.step(q), self.query(q), 0.0f64);
        let scores: Vec<f64> = (0..end)
            .map(|p| {
                let before = position.saturating_sub(p);
                let hidden = if chunked { p < position / window * window } else { before >= window };
                if hidden || !(chosen.is_empty() || chosen.contains(&((p / length) as f32))) {
                    return f64::NEG_INFINITY;
                }
                let product = |d: usize| q[d] * self.key(p, d);
                let (sum, size) = (0..q.len()).map(product).fold((0.0, 0.0), |(s, a), x| (s + x, a + x.abs()));
                // A score has the errors of the sum's roundings, of the product with the scale, and of the difference
                // from the largest score.
                let keys: f64 = (0..q.len()).map(|d| self.key(p, d).abs()).sum();
                let rounded = ROUNDING * ((q.len() + 2) as f64 * size + 4.0 * size) + 0.51 * step * keys;
                doubt = doubt.max(f64::from(scale) * rounded);
                let (score, softcap) = (sum * f64::from(scale), f64::from(softcap));
                if softcap == 0.0 {
                    return score;
                }
                // tanh has an error of a few roundings of the number 1, and its slope is at most 1.
                doubt = doubt.max(8.0 * ROUNDING * softcap + f64::from(scale) * rounded);
                softcap * (score / softcap).tanh()
            })
            .collect();
        let sink = sink.map_or(f64::NEG_INFINITY, f64::from);
        let top = scores.iter().copied().fold(sink, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let total: f64 = weights.iter().sum::<f64>() + (sink - top).exp();
        // A weight's error is its score's error plus two units of e^x. Each position adds one rounding to the sums.
        let relative = 2.0 * doubt + ROUNDING * (2 * position + 40) as f64;
        let found = (0..q.len())
            .map(|d| {
                let terms = weights.iter().enumerate().map(|(p, w)| w / total * self.value(p, d));
                let (sum, size) = terms.fold((0.0, 0.0), |(s, a), x| (s + x, a + x.abs()));
                (sum, relative * size + self.rounded_weights(&weights, d) / total)
            })
            .collect();
        if self.kind == KvType::Q4_0 { self.rotated_back(found) } else { found }
    }

    /// Rotates a result back, and its error's bound: the bounds of a piece add up, and each stage rounds once.
    fn rotated_back(&self, found: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
        let (mut sums, limits): (Vec<f64>, Vec<f64>) = found.into_iter().unzip();
        let size: f64 = sums.iter().map(|x| x.abs()).sum();
        let limit = limits.iter().sum::<f64>() + 12.0 * ROUNDING * size;
        hadamard(&mut sums);
        // A piece has at least 32 dimensions.
        sums.into_iter().take(self.head_dim).map(|sum| (sum, limit / 32f64.sqrt())).collect()
    }

    /// Returns the step between a query's codes, or 0 if `query` already rounds it.
    fn step(&self, q: &[f32]) -> f64 {
        if self.kind != KvType::Int16 {
            return 0.0;
        }
        let norm = |q: &[f32]| q.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let top = q.iter().map(|x| f64::from(x.abs())).fold(0.0, f64::max);
        q.chunks(32).map(norm).fold(0.0, f64::max).max(top * (46_000.0 / 32_766.0)) / 46_000.0
    }

    /// Returns an upper bound of the error that rounded weights cause in dimension d: half a step for each position's
    /// code.
    fn rounded_weights(&self, weights: &[f64], d: usize) -> f64 {
        match self.kind {
            KvType::Int16 => self.rounded_to_16_bits(weights, d),
            KvType::Q8_0 | KvType::Q4_0 => self.rounded_to_two_planes(weights, d),
        }
    }

    /// The bound for 16-bit weights. The positions of a chunk share a scale, which is from the largest weight and the
    /// largest sum of 16 weights.
    fn rounded_to_16_bits(&self, weights: &[f64], d: usize) -> f64 {
        let chunk = |(c, weights): (usize, &[f64])| {
            let scale = |i: usize| self.scale(&self.values[self.block(1, c * CHUNK + i)..], (c * CHUNK + i) % KV_BLOCK);
            let scaled: Vec<f64> = weights.iter().enumerate().map(|(i, w)| w * scale(i)).collect();
            let top = scaled.iter().copied().fold(0.0, f64::max);
            let sum = scaled.chunks(16).map(|part| part.iter().sum()).fold(0.0, f64::max);
            let codes: f64 =
                (0..weights.len()).map(|i| (self.value(c * CHUNK + i, d) / scale(i).max(1e-30)).abs()).sum();
            0.51 * (top / 32_766.0).max(sum / 65_500.0) * codes
        };
        weights.chunks(CHUNK).enumerate().map(chunk).sum()
    }

    /// The bound for weights in two planes. The positions of a block share a scale, which is from the largest weight.
    fn rounded_to_two_planes(&self, weights: &[f64], d: usize) -> f64 {
        let block = |(b, weights): (usize, &[f64])| {
            let first = b * KV_BLOCK;
            let (at, steps): (fn(usize, usize, usize) -> usize, f64) =
                if self.kind == KvType::Q8_0 { (q8_0::scale_index, 127.0) } else { (value_scale_index, 254.0) };
            let scale = |i: usize| half(&self.values[self.block(1, first)..], at(self.head_dim, d, i));
            let top = weights.iter().enumerate().fold(0.0, |top: f64, (i, w)| top.max(w * scale(i).abs()));
            let codes: f64 = (0..weights.len()).map(|i| (self.value(first + i, d) / scale(i)).abs()).sum();
            0.51 * top / (127.0 * steps) * codes
        };
        weights.chunks(KV_BLOCK).enumerate().map(block).sum()
    }
}

/// Returns the byte index of a value's scale in Q4_0.
fn value_scale_index(head_dim: usize, d: usize, slot: usize) -> usize {
    q4_0::scale_index(q4_0::VALUE_BITS, head_dim, d, slot)
}

/// Returns the 16 bits at an index; `code` returns the code that they hold.
fn word(bytes: &[u8], index: usize) -> u16 {
    u16::from_ne_bytes([bytes[2 * index], bytes[2 * index + 1]])
}

fn code(bytes: &[u8], index: usize) -> f64 {
    f64::from(word(bytes, index).cast_signed())
}

/// Returns the half float at a byte offset.
fn half(bytes: &[u8], at: usize) -> f64 {
    f64::from(f16_to_f32(u16::from_ne_bytes([bytes[at], bytes[at + 1]])))
}

struct Buffers {
    keys: Guarded,
    values: Guarded,
    q: Guarded,
    out: Guarded,
    scratch: Guarded,
}

/// The rows of a call. Each is a query (or a query and its gate) with its position.
struct Rows<'a> {
    q: Vec<&'a [f32]>,
    positions: &'a [usize],
    ends: Vec<usize>,
    parts: Vec<Part<'a>>,
    shared: usize,
    /// The window in positions, and whether it is the size of chunks.
    window: (usize, bool),
    /// One sink per row, or empty.
    sinks: &'a [f32],
    /// The softcap of the scores; 0 means none.
    softcap: f32,
    /// The blocks that all rows attend to (empty: all positions), and the number of positions per block.
    chosen: (&'a [f32], usize),
}

impl<'a> Rows<'a> {
    /// Returns rows that all belong to one sequence.
    fn of(
        q: &'a [Vec<f32>],
        positions: &'a [usize],
        block_table: &'a [i32],
        window: (usize, bool),
        sinks: &'a [f32],
        softcap: f32,
    ) -> Self {
        let parts = vec![Part { rows: q.len(), first_block: 0, block_table }];
        let (q, ends) =
            (q.iter().map(Vec::as_slice).collect(), positions.iter().map(|position| position + 1).collect());
        Self { q, positions, ends, parts, shared: 0, window, sinks, softcap, chosen: (&[], 1) }
    }

    /// Returns the rows with other ends of the positions that they see.
    fn up_to(self, ends: Vec<usize>) -> Self {
        Self { ends, ..self }
    }
}

/// Returns a sink for each row, or none. Sinks are negligible, comparable to the scores, or larger than all of them.
fn sinks(rows: usize, random: &mut Random) -> Vec<f32> {
    match random.below(3) {
        0 => Vec::new(),
        _ => (0..rows).map(|_| random.unit() * random.pick(&[1.0, 4.0, 30.0])).collect(),
    }
}

/// Returns the sinks of some rows.
fn some(sinks: &[f32], rows: std::ops::Range<usize>) -> &[f32] {
    if sinks.is_empty() { sinks } else { &sinks[rows] }
}

/// Returns no window, or a window that starts anywhere in the context, including the edges of blocks and chunks. Also
/// returns whether it is the size of chunks.
fn window(seen: usize, random: &mut Random) -> (usize, bool) {
    match random.below(3) {
        0 => (usize::MAX, false),
        1 => (random.between(1, seen + 3), random.below(3) == 0),
        _ => (random.pick(&SEEN), random.below(3) == 0),
    }
}

/// Returns ascending blocks up to position `last`, and the length of a block. No blocks mean that rows attend to all
/// positions.
fn chosen(last: usize, random: &mut Random) -> (Vec<f32>, usize) {
    let (every, length) = (random.pick(&[1, 3, 40]), random.pick(&[1, 1, 16, 48, 128]));
    let some: Vec<f32> = (0..=last / length).filter(|_| random.below(every) == 0).map(|p| p as f32).collect();
    (if every == 1 { Vec::new() } else { some }, length)
}

/// Runs the kernel with all operands at guard pages. Returns one result per row.
fn run(k: Isa, cache: &Cache, rows: &Rows, scale: f32, b: &mut Buffers) -> Vec<Vec<f32>> {
    let (q, dim) = (&rows.q, cache.head_dim);
    let stride = q[0].len();
    let queries = b.q.copy(&q.concat()).as_ptr();
    let out = b.out.tail::<f32>(q.len() * dim).as_mut_ptr();
    // SAFETY: queries and results have a row for each query.
    let (queries, results): (Vec<_>, Vec<_>) =
        unsafe { (0..q.len()).map(|r| (queries.add(r * stride), out.add(r * dim))).unzip() };
    let (blocks, length) = rows.chosen;
    let chosen = if blocks.is_empty() { Vec::new() } else { vec![blocks.as_ptr(); q.len()] };
    let args = AttentionTile {
        q: &queries,
        out: &results,
        positions: rows.positions,
        ends: &rows.ends,
        parts: &rows.parts,
        shared: rows.shared,
        window: rows.window.0,
        chunked: rows.window.1,
        sinks: rows.sinks,
        chosen: &chosen,
        choices: [blocks.len(), length],
        cache: [b.keys.copy(&cache.keys).as_ptr(), b.values.copy(&cache.values).as_ptr()],
        block_stride: cache.block_stride(),
        head_offset: cache.head_offset_of(cache.head),
        after: std::ptr::null(),
        head_dim: dim,
        scale,
        softcap: rows.softcap,
        gated: stride > dim,
        scratch: b.scratch.tail::<f32>(scratch_len(cache.kind, dim)).as_mut_ptr(),
    };
    // SAFETY: the cache holds all positions, and the scratch memory has the required size.
    unsafe {
        attend(k, cache.kind, &args);
        std::slice::from_raw_parts(out, q.len() * dim).chunks(dim).map(<[f32]>::to_vec).collect()
    }
}

/// Runs one tile of tokens x group rows, then some of its rows alone, and compares. Returns the number of calls.
fn tile(k: Isa, kind: KvType, head_dim: usize, group: usize, random: &mut Random, b: &mut Buffers) -> usize {
    let seen = random.pick(&SEEN);
    let most = if random.below(8) == 0 { MAX_ROWS } else { 5 };
    let tokens = random.between(1, most.min(MAX_ROWS / group).min(seen));
    let cache = Cache::new(k, kind, head_dim, seen, random);
    let positions: Vec<usize> = (0..tokens * group).map(|r| seen - tokens + r / group).collect();
    let size = random.pick(&[0.1, 1.0, 4.0]);
    let width = if random.below(4) == 0 { 2 * head_dim } else { head_dim };
    let q: Vec<Vec<f32>> = positions.iter().map(|_| (0..width).map(|_| random.unit() * size).collect()).collect();
    let scale = 1.0 / (head_dim as f32).sqrt();
    let (window, sinks, softcap) = (window(seen, random), sinks(q.len(), random), random.pick(&[0.0, 0.0, 2.0, 50.0]));
    let name = |r: usize| {
        format!(
            "{} {kind:?} head_dim {head_dim}, group {group}, window {window:?}, softcap {softcap}, row {r}, position {}",
            k.name(),
            positions[r]
        )
    };
    // In a third of the calls, the last rows also see the positions behind their own, as rows of an image do.
    let image = if random.below(3) == 0 { seen - random.below(tokens + 1) } else { seen };
    let end = |r: usize| if positions[r] < image { positions[r] + 1 } else { seen };
    let ends: Vec<usize> = (0..q.len()).map(end).collect();
    let (blocks, length) = if window.0 == usize::MAX { chosen(positions[0], random) } else { (Vec::new(), 1) };
    let chosen = (blocks.as_slice(), length);
    let of =
        |q, positions, sinks| Rows { chosen, ..Rows::of(q, positions, &cache.block_table, window, sinks, softcap) };
    let together = run(k, &cache, &of(&q, &positions, &sinks).up_to(ends.clone()), scale, b);
    for (r, got) in together.iter().enumerate().filter(|(r, _)| tokens <= 5 || r % 7 == 0) {
        let (query, gates) = q[r].split_at(head_dim);
        let reference =
            cache.reference(query, [positions[r], ends[r]], window, [scale, softcap], sinks.get(r).copied(), chosen);
        for (d, (want, limit)) in reference.into_iter().enumerate() {
            let gate = gates.get(d).map_or(1.0, |g| 1.0 / (1.0 + (-f64::from(*g)).exp()));
            assert_near(got[d], want * gate, (limit + 8.0 * ROUNDING * want.abs()) * gate, || name(r));
        }
    }
    for _ in 0..4 {
        let r = random.below(q.len());
        let one = of(&q[r..=r], &positions[r..=r], some(&sinks, r..r + 1));
        let alone = run(k, &cache, &one.up_to(vec![ends[r]]), scale, b);
        assert_same_bits(&alone[0], &together[r], || name(r));
    }
    5
}

#[test]
fn attention_matches_f64_and_is_independent_of_the_tile() {
    on_every_isa("attention", |k| {
        let mut random = Random::new(9);
        let new = || Guarded::new(1 << 18);
        let mut buffers = Buffers { keys: new(), values: new(), q: new(), out: new(), scratch: new() };
        let mut cases = 0;
        for head_dim in HEAD_DIMS {
            for group in 1..=8 {
                for i in 0..share(32) {
                    cases += tile(k, KvType::ALL[i % 3], head_dim, group, &mut random, &mut buffers);
                }
            }
        }
        cases
    });
}

/// Runs sequences with the same first blocks, together and each alone, and compares. Returns the number of calls.
fn prefix(k: Isa, kind: KvType, head_dim: usize, group: usize, random: &mut Random, b: &mut Buffers) -> usize {
    let shared = CHUNK * random.between(1, 3);
    let count = random.between(2, (MAX_ROWS / group).min(12));
    let lengths: Vec<usize> = (0..count).map(|_| shared + random.between(1, 200)).collect();
    let own = |length: usize| (length - shared).div_ceil(KV_BLOCK);
    let blocks = shared / KV_BLOCK + lengths.iter().map(|n| own(*n)).sum::<usize>();
    let cache = Cache::new(k, kind, head_dim, blocks * KV_BLOCK, random);
    let (common, mut rest) = cache.block_table.split_at(shared / KV_BLOCK);
    let mut tables = Vec::new();
    for length in &lengths {
        let (mine, others) = rest.split_at(own(*length));
        tables.push([common, mine].concat());
        rest = others;
    }
    let positions: Vec<usize> = lengths.iter().flat_map(|n| vec![n - 1; group]).collect();
    let q: Vec<Vec<f32>> = positions.iter().map(|_| (0..head_dim).map(|_| random.unit() * 2.0).collect()).collect();
    let scale = 1.0 / (head_dim as f32).sqrt();
    let parts = tables.iter().map(|table| Part { rows: group, first_block: 0, block_table: table }).collect();
    let (window, sinks, softcap) = (window(shared, random), sinks(q.len(), random), random.pick(&[0.0, 5.0]));
    let all = q.iter().map(Vec::as_slice).collect();
    let ends = lengths.iter().flat_map(|n| vec![*n; group]).collect();
    let rows =
        Rows { q: all, positions: &positions, ends, parts, shared, window, sinks: &sinks, softcap, chosen: (&[], 1) };
    let together = run(k, &cache, &rows, scale, b);
    for (i, table) in tables.iter().enumerate() {
        let mine = i * group..(i + 1) * group;
        let own = some(&sinks, mine.clone());
        let alone = run(
            k,
            &cache,
            &Rows::of(&q[mine.clone()], &positions[mine.clone()], table, window, own, softcap),
            scale,
            b,
        );
        for (r, row) in mine.zip(alone) {
            assert_same_bits(&together[r], &row, || {
                format!("{} {kind:?} head_dim {head_dim}, {count} sequences, window {window:?}, row {r}", k.name())
            });
        }
    }
    1 + count
}

#[test]
fn shared_prefix_gives_each_sequence_its_own_result() {
    on_every_isa("attention over a common prefix", |k| {
        let mut random = Random::new(10);
        let new = || Guarded::new(1 << 18);
        let mut buffers = Buffers { keys: new(), values: new(), q: new(), out: new(), scratch: new() };
        let mut of = |kind, i: usize| {
            prefix(k, kind, HEAD_DIMS[i % HEAD_DIMS.len()], random.between(1, 8), &mut random, &mut buffers)
        };
        (0..share(60)).flat_map(|i| KvType::ALL.map(|kind| (kind, i))).map(|(kind, i)| of(kind, i)).sum()
    });
}

/// The sums of products are at the limit of 32 bits. Keys have numbers of one size or a single nonzero dimension, and
/// queries are parallel to them. Values are as large as possible, with equal weights or a single weight.
#[test]
fn products_of_16_bits_fit_32() {
    on_every_isa("attention at the edges of 32 bits", |k| {
        let mut random = Random::new(16);
        let new = || Guarded::new(1 << 18);
        let mut buffers = Buffers { keys: new(), values: new(), q: new(), out: new(), scratch: new() };
        let mut cases = 0;
        for head_dim in HEAD_DIMS {
            for (sign, outlier) in [(1.0, 1.0), (-1.0, 1.0), (1.0, 300.0), (-1.0, 300.0)] {
                let seen = random.pick(&SEEN);
                let head = |size: f32| -> Vec<f32> {
                    (0..head_dim).map(|d| if d == 3 { size * outlier } else { size }).collect()
                };
                let mut cache = Cache::of(k, KvType::Int16, head_dim, seen, &mut random, |_| [0.0, 0.0]);
                for position in 0..seen {
                    let block = [0, 1].map(|i| cache.block(i, position));
                    let (slot, append) = (position % KV_BLOCK, cache.kind.appenders());
                    let (key, value) = (head(sign), head(65504.0 / outlier));
                    // SAFETY: each head has its own block.
                    unsafe {
                        (append.key)(k, key.as_ptr(), head_dim, cache.keys[block[0]..].as_mut_ptr(), slot);
                        (append.value)(k, value.as_ptr(), head_dim, cache.values[block[1]..].as_mut_ptr(), slot);
                    }
                }
                let q = [head(1.0)];
                let scale = 1.0 / (head_dim as f32 * outlier * outlier);
                let positions = [seen - 1];
                let rows = Rows::of(&q, &positions, &cache.block_table, (usize::MAX, false), &[], 0.0);
                let got = run(k, &cache, &rows, scale, &mut buffers);
                for (d, (want, limit)) in cache
                    .reference(&q[0], [seen - 1, seen], (usize::MAX, false), [scale, 0.0], None, (&[], 1))
                    .into_iter()
                    .enumerate()
                {
                    let what = || format!("{}, head_dim {head_dim}, sign {sign}, outlier {outlier}, {seen}", k.name());
                    assert_near(got[0][d], want, limit + 8.0 * ROUNDING * want.abs(), what);
                }
                cases += 1;
            }
        }
        cases
    });
}
