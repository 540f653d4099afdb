//! Tests the choice of blocks against f64. Blocks with nearly equal scores may be exchanged, because of rounding.
use super::support::{Guarded, Random, on_every_isa, share};
use compy::kernels::kv::{KV_BLOCK, KvType};
use compy::ops::choose::{Blocks, Scores, best_blocks, scratch_len};
use compy::simd::Isa;

/// Chooses positions with weighted heads. If `length` is above 1, each head chooses blocks alone.
fn case(k: Isa, kind: KvType, length: usize, random: &mut Random, [keys, q, weights, scratch]: &mut [Guarded; 4]) {
    let (dim, alone) = (16 * random.between(1, 8), length > 1);
    let heads = random.between(1, if alone { 8 } else { 64 });
    let wanted = random.between(1, if alone { 5 } else { 40 });
    let local = if alone { random.below(wanted + 1) } else { 0 };
    let seen = wanted * length + random.between(1, 200);
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
        weights: if alone { std::ptr::null() } else { weights.copy(&factors).as_ptr() },
        keys: bytes.as_ptr(),
        block_stride: size,
        block_table: &blocks,
        seen,
        scratch: scratch.tail::<f32>(scratch_len(kind, dim)).as_mut_ptr(),
    };
    // SAFETY: all pointers have the sizes that the kernel needs.
    let lists = unsafe { best_blocks(k, kind, &scores, Blocks { length, wanted, local }) };
    assert_eq!(lists.len(), if alone { heads } else { 1 });
    let product = |q: &[f32], key: &[f32]| q.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>();
    let score = |list: usize, key: &[f32]| -> f64 {
        if alone {
            return product(&asked[list], key);
        }
        asked.iter().zip(&factors).map(|(q, factor)| f64::from(*factor) * product(q, key).max(0.0)).sum()
    };
    // The cache rounds keys and queries to 4, 8 or 16 bits.
    let step = match kind {
        KvType::Int16 => 1e-4,
        KvType::Q8_0 => 2e-2,
        KvType::Q4_0 => 0.05,
    };
    let doubt = step * (dim * if alone { 1 } else { heads }) as f64;
    let count = seen.div_ceil(length);
    for (list, got) in lists.into_iter().enumerate() {
        assert_eq!(got.len(), wanted);
        assert!(got.windows(2).all(|two| two[0] < two[1]) && (got[wanted - 1] as usize) < count);
        let forced = |block: usize| block + local >= count;
        assert!((0..count).filter(|block| forced(*block)).all(|block| got.contains(&(block as u32))));
        let block_score = |keys: &[Vec<f32>]| keys.iter().map(|key| score(list, key)).fold(f64::NEG_INFINITY, f64::max);
        let all: Vec<f64> = cached.chunks(length).map(block_score).collect();
        let mut sorted: Vec<f64> = (0..count).filter(|block| !forced(*block)).map(|block| all[block]).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        for block in got.into_iter().map(|block| block as usize).filter(|block| !forced(*block)) {
            let (score, least) = (all[block], sorted[wanted - local - 1]);
            assert!(score >= least - doubt, "{} {kind:?} blocks of {length}: {score} is below {least}", k.name());
        }
    }
}

#[test]
fn the_best_blocks_are_chosen() {
    on_every_isa("choose", |k| {
        let (mut random, mut buffers) = (Random::new(41), [(); 4].map(|()| Guarded::new(1 << 19)));
        let cases = share(200);
        for i in 0..cases {
            let length = if i % 2 == 0 { 1 } else { random.pick(&[2, 16, 24, 32, 128]) };
            case(k, KvType::ALL[i % KvType::ALL.len()], length, &mut random, &mut buffers);
        }
        cases
    });
}
