//! What is appended to the KV cache, type by type: every value at its place, rounded as it should be, and nothing else
//! touched.
use super::support::{Guarded, Random, on_every_isa, share};
use compy::half::f32_to_f16;
use compy::kernels::kv::{KV_BLOCK, KvType, f16, q8_0};
use compy::simd::Isa;

/// A key or a value: small numbers, now and then one at the ends of what halves hold, or none at all.
fn draw(head_dim: usize, random: &mut Random) -> Vec<f32> {
    const EDGES: [f32; 9] = [1e9, -1e9, 65504.0, 65520.0, 0.0, 1e-8, -3e-40, f32::INFINITY, f32::NAN];
    let (odd, size) = (random.below(3), random.pick(&[1.0, 1.0, 100.0, 1e-3, 1e-6, 0.0]));
    let mut value = |_| if odd == 0 && random.below(8) == 0 { random.pick(&EDGES) } else { random.unit() * size };
    (0..head_dim).map(&mut value).collect()
}

/// Appends x as key and as value to a slot of blocks of 0xff; returns both blocks.
fn append<'a>(
    k: Isa,
    kind: KvType,
    x: &[f32],
    slot: usize,
    [head, keys, values]: &'a mut [Guarded; 3],
) -> [&'a [u8]; 2] {
    let (append, bytes) = (kind.appenders(), kind.block_bytes(x.len()));
    let head = head.copy(x).as_ptr();
    let (keys, values) = (keys.tail::<u8>(bytes), values.tail::<u8>(bytes));
    // SAFETY: one head and one block each.
    unsafe {
        (append.key)(k, head, x.len(), keys.as_mut_ptr(), slot);
        (append.value)(k, head, x.len(), values.as_mut_ptr(), slot);
    }
    [keys, values]
}

/// Fails unless the block is 0xff but for what `wanted` says, as pairs of a place and its byte.
#[track_caller]
fn assert_block(found: &[u8], wanted: impl Iterator<Item = (usize, u8)>, what: impl Fn() -> String) {
    let mut want = vec![0xff; found.len()];
    wanted.for_each(|(at, byte)| want[at] = byte);
    if let Some(at) = (0..want.len()).find(|at| found[*at] != want[*at]) {
        panic!("{}: byte {at} is {:#x}, wanted {:#x}", what(), found[at], want[at]);
    }
}

fn halves_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 3]) {
    let (head_dim, slot) = (16 * random.between(1, 16), random.below(KV_BLOCK));
    let x = draw(head_dim, random);
    // What is no number counts as large.
    let finite = |x: &f32| if x.is_nan() { 65504.0 } else { x.clamp(-65504.0, 65504.0) };
    let half = |d: usize| f32_to_f16(finite(&x[d])).to_ne_bytes();
    let at = |index: usize, half: [u8; 2]| [(2 * index, half[0]), (2 * index + 1, half[1])];
    let [keys, values] = append(k, KvType::F16, &x, slot, buffers);
    let what = |of: &str| format!("{} {of} of {head_dim} in slot {slot}", k.name());
    assert_block(keys, (0..head_dim).flat_map(|d| at(f16::key_index(head_dim, d, slot), half(d))), || what("key"));
    assert_block(values, (0..head_dim).flat_map(|d| at(slot * head_dim + d, half(d))), || what("value"));
}

/// The scale of some values and their codes, as GGUF's Q8_0 has them.
fn quantised(x: &[f32]) -> (u16, Vec<i8>) {
    let finite = |x: &f32| if x.is_nan() { 65504.0 } else { x.clamp(-65504.0, 65504.0) };
    let top = x.iter().map(|x| finite(x).abs()).fold(0.0, f32::max);
    if top / 127.0 <= f32::MIN_POSITIVE {
        return (0, vec![0; x.len()]);
    }
    let codes = x.iter().map(|x| (finite(x) * (127.0 / top)).round_ties_even() as i8);
    (f32_to_f16(top / 127.0), codes.collect())
}

fn codes_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 3]) {
    let (head_dim, slot) = (16 * random.between(1, 16), random.below(KV_BLOCK));
    let x = draw(head_dim, random);
    let (mut keys, mut values) = (vec![], vec![]);
    for (b, values_of_scale) in x.chunks(q8_0::SCALED).enumerate() {
        let (scale, codes) = quantised(values_of_scale);
        let place = q8_0::scale_index(head_dim, b * q8_0::SCALED, slot);
        let scale = scale.to_ne_bytes().into_iter().enumerate().map(|(i, byte)| (place + i, byte));
        keys.extend(scale.clone());
        values.extend(scale);
        for (i, code) in codes.into_iter().enumerate() {
            let d = b * q8_0::SCALED + i;
            keys.push((q8_0::key_index(k.lanes(), head_dim, d, slot), code as u8 ^ 0x80));
            values.push((q8_0::value_index(k.lanes(), d, slot), code as u8));
        }
    }
    let what = |of: &str| format!("{} {of} of {head_dim} in slot {slot}, from {x:?}", k.name());
    let found = append(k, KvType::Q8_0, &x, slot, buffers);
    assert_block(found[0], keys.into_iter(), || what("key"));
    assert_block(found[1], values.into_iter(), || what("value"));
}

#[test]
fn appends_write_one_slot_in_finite_halves() {
    on_every_isa("append to F16", |k| {
        let (mut random, mut buffers) = (Random::new(4), [(); 3].map(|()| Guarded::new(1 << 14)));
        let cases = share(4_000);
        (0..cases).for_each(|_| halves_case(k, &mut random, &mut buffers));
        2 * cases
    });
}

#[test]
fn appends_write_one_slot_in_codes_and_finite_scales() {
    on_every_isa("append to Q8_0", |k| {
        let (mut random, mut buffers) = (Random::new(14), [(); 3].map(|()| Guarded::new(1 << 14)));
        let cases = share(4_000);
        (0..cases).for_each(|_| codes_case(k, &mut random, &mut buffers));
        2 * cases
    });
}
