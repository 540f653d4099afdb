//! Tests the choice of positions: it agrees with f64, up to scores that rounding may exchange.
use super::support::{Guarded, Random, on_every_isa, share};
use compy::kernels::kv::{KV_BLOCK, KvType};
use compy::ops::choose::{Scores, best_positions, scratch_len};
use compy::simd::Isa;

fn case(k: Isa, kind: KvType, random: &mut Random, [keys, q, weights, scratch]: &mut [Guarded; 4]) {
    let (dim, heads) = (16 * random.between(1, 8), random.between(1, 64));
    let wanted = random.between(1, 40);
    let seen = wanted + random.between(1, 200);
    let vector = |random: &mut Random| (0..dim).map(|_| random.unit()).collect::<Vec<f32>>();
    let cached: Vec<Vec<f32>> = (0..seen).map(|_| vector(random)).collect();
    let asked: Vec<Vec<f32>> = (0..heads).map(|_| vector(random)).collect();
    let factors: Vec<f32> = (0..heads).map(|_| random.unit()).collect();
    let [size, _] = kind.block_bytes(dim);
    let blocks: Vec<i32> = (0..seen.div_ceil(KV_BLOCK) as i32).rev().collect();
    let bytes = keys.tail::<u8>(blocks.len() * size);
    for (position, key) in cached.iter().enumerate() {
        let block = blocks[position / KV_BLOCK] as usize * size;
        // SAFETY: the block is in the buffer.
        unsafe {
            (kind.appenders().key)(k, key.as_ptr(), dim, bytes[block..].as_mut_ptr(), position % KV_BLOCK);
        }
    }
    let rows = q.copy(&asked.concat());
    let q: Vec<*const f32> = rows.chunks(dim).map(<[f32]>::as_ptr).collect();
    let scores = Scores {
        q: &q,
        head_dim: dim,
        weights: weights.copy(&factors).as_ptr(),
        keys: bytes.as_ptr(),
        block_stride: size,
        block_table: &blocks,
        seen,
        scratch: scratch.tail::<f32>(scratch_len(kind, dim)).as_mut_ptr(),
    };
    // SAFETY: all pointers have the sizes that the kernel needs.
    let got = unsafe { best_positions(k, kind, &scores, wanted) };
    assert_eq!(got.len(), wanted);
    assert!(got.is_sorted() && got.windows(2).all(|two| two[0] < two[1]) && (got[wanted - 1] as usize) < seen);
    let score = |key: &Vec<f32>| -> f64 {
        let product = |q: &Vec<f32>| q.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>();
        asked.iter().zip(&factors).map(|(q, factor)| f64::from(*factor) * product(q).max(0.0)).sum()
    };
    let all: Vec<f64> = cached.iter().map(score).collect();
    let mut sorted = all.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    // The cache rounds keys and queries to 4, 8 or 16 bits.
    let step = match kind {
        KvType::Int16 => 1e-4,
        KvType::Q8_0 => 2e-2,
        KvType::Q4_0 => 0.05,
    };
    let doubt = step * (dim * heads) as f64;
    for position in got {
        let score = all[position as usize];
        let least = sorted[wanted - 1];
        assert!(score >= least - doubt, "{} {kind:?}: {score} is below {least}", k.name());
    }
}

#[test]
fn the_best_positions_are_chosen() {
    on_every_isa("choose", |k| {
        let (mut random, mut buffers) = (Random::new(41), [(); 4].map(|()| Guarded::new(1 << 19)));
        let cases = share(200);
        (0..cases).for_each(|i| case(k, KvType::ALL[i % KvType::ALL.len()], &mut random, &mut buffers));
        cases
    });
}
