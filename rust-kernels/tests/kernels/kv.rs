//! Tests appending to the KV cache, for each type: every value is in its place with the right rounding, and no other
//! byte changes.
use super::support::{Guarded, Random, hadamard, on_every_isa, share};
use compy::half::{bf16_to_f32, f16_to_f32, f32_to_f16};
use compy::kernels::kv::{KV_BLOCK, KvType, int16, q4_0, q8_0};
use compy::simd::Isa;

/// Returns a key or a value of small numbers. Sometimes one is NaN or at the limits of half floats.
fn draw(head_dim: usize, random: &mut Random) -> Vec<f32> {
    const EDGES: [f32; 9] = [1e9, -1e9, 65504.0, 65520.0, 0.0, 1e-8, -3e-40, f32::INFINITY, f32::NAN];
    let (odd, size) = (random.below(3), random.pick(&[1.0, 1.0, 100.0, 1e-3, 1e-6, 0.0]));
    let mut value = |_| if odd == 0 && random.below(8) == 0 { random.pick(&EDGES) } else { random.unit() * size };
    (0..head_dim).map(&mut value).collect()
}

/// Appends x as a key and as a value to a slot of blocks that are filled with 0xff. Returns both blocks.
fn append<'a>(
    k: Isa,
    kind: KvType,
    x: &[f32],
    slot: usize,
    [head, keys, values]: &'a mut [Guarded; 3],
) -> [&'a [u8]; 2] {
    let (append, [key_bytes, value_bytes]) = (kind.appenders(), kind.block_bytes(x.len()));
    let head = head.copy(x).as_ptr();
    let (keys, values) = (keys.tail::<u8>(key_bytes), values.tail::<u8>(value_bytes));
    // SAFETY: there is one head with one block of keys and one block of values.
    unsafe {
        (append.key)(k, head, x.len(), keys.as_mut_ptr(), slot);
        (append.value)(k, head, x.len(), values.as_mut_ptr(), slot);
    }
    [keys, values]
}

/// Checks that every byte of the block is 0xff, except for the pairs of index and byte in `wanted`.
#[track_caller]
fn assert_block(found: &[u8], wanted: impl Iterator<Item = (usize, u8)>, what: impl Fn() -> String) {
    let mut want = vec![0xff; found.len()];
    wanted.for_each(|(at, byte)| want[at] = byte);
    if let Some(at) = (0..want.len()).find(|at| found[*at] != want[*at]) {
        panic!("{}: byte {at} is {:#x}, wanted {:#x}", what(), found[at], want[at]);
    }
}

/// Returns the number that is appended for x: clamped to half floats, and the largest for NaN.
fn finite(x: f32) -> f32 {
    if x.is_nan() { 65504.0 } else { x.clamp(-65504.0, 65504.0) }
}

/// Checks a slot of one head. The scale is a float with 16 zero bits at the end, and the smallest of these that is not
/// below `least`, within f32's rounding. The codes are x divided by that scale.
#[track_caller]
fn assert_codes(
    found: &[u8],
    x: &[f32],
    slot: usize,
    least: f64,
    index: impl Fn(usize) -> usize,
    what: impl Fn() -> String,
) {
    let place = int16::scale_index(x.len(), slot);
    let bits = u16::from_ne_bytes([found[2 * place], found[2 * place + 1]]);
    let scale = bf16_to_f32(bits);
    let below = if bits == 0 { 0.0 } else { bf16_to_f32(bits - 1) };
    if least < f64::from(f32::MIN_POSITIVE) {
        assert_eq!(bits, 0, "{}: the scale of {least:e}", what());
    } else {
        let near = 1.0 + 1e-5;
        assert!(f64::from(scale) * near >= least, "{}: scale {scale:e} below {least:e}", what());
        assert!(f64::from(below) < least * near, "{}: scale {scale:e} and not {below:e}, of {least:e}", what());
    }
    let inverse = if bits == 0 { 0.0 } else { 1.0 / scale };
    let code = |d: usize| (finite(x[d]) * inverse).round_ties_even() as i16;
    let bytes =
        |index: usize, word: u16| word.to_ne_bytes().into_iter().enumerate().map(move |(i, b)| (2 * index + i, b));
    let codes = (0..x.len()).flat_map(|d| bytes(index(d), code(d).cast_unsigned()));
    assert_block(found, codes.chain(bytes(place, bits)), what);
}

fn int16_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 3]) {
    let (head_dim, slot) = (16 * random.between(1, 16), random.below(KV_BLOCK));
    let x = draw(head_dim, random);
    let top = x.iter().map(|x| f64::from(finite(*x).abs())).fold(0.0, f64::max);
    let norm = |x: &[f32]| x.iter().map(|x| f64::from(finite(*x)).powi(2)).sum::<f64>().sqrt();
    let norm = x.chunks(32).map(norm).fold(0.0, f64::max);
    let [keys, values] = append(k, KvType::Int16, &x, slot, buffers);
    let what = |of: &str| format!("{} {of} of {head_dim} in slot {slot}, from {x:?}", k.name());
    let (lanes, together) = (k.lanes(), k.pairs_together());
    let key = |d: usize| int16::key_index(lanes, together, head_dim, d, slot);
    assert_codes(keys, &x, slot, (norm / 46_000.0).max(top / 32_766.0), key, || what("key"));
    let value = |d: usize| int16::value_index(lanes, together, d, slot);
    assert_codes(values, &x, slot, top / 32_766.0, value, || what("value"));
}

/// Returns the scale and the codes of some values in GGUF's Q8_0.
fn quantised(x: &[f32]) -> (u16, Vec<i8>) {
    let top = x.iter().map(|x| finite(*x).abs()).fold(0.0, f32::max);
    if top / 127.0 <= f32::MIN_POSITIVE {
        return (0, vec![0; x.len()]);
    }
    let codes = x.iter().map(|x| (finite(*x) * (127.0 / top)).round_ties_even() as i8);
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

/// Returns the scale of plain Q4_0: the number furthest from zero has the code 0.
fn plain_scale(x: &[f32]) -> f32 {
    let [above, below] = [1.0, -1.0].map(|sign| x.iter().map(|x| sign * x).fold(0.0, f32::max));
    let furthest = if above > below { above } else { -below };
    f16_to_f32(f32_to_f16((furthest / -8.0).clamp(-65504.0, 65504.0)))
}

/// Returns the sum of squared errors of codes under a scale.
fn errors(x: &[f32], scale: f32, code: impl Fn(usize) -> f32) -> f64 {
    x.iter().enumerate().map(|(d, x)| f64::from(x - code(d) * scale).powi(2)).sum()
}

/// Returns the byte index and the first bit of two parts of code d of the key in `slot`: the lower 4 bits, then the
/// upper 2 bits.
pub fn key_places(lanes: usize, head_dim: usize, d: usize, slot: usize) -> [(usize, usize); 2] {
    let (part, group) = (q4_0::keys::part(lanes, head_dim, d, slot), d % q4_0::SCALED / 4);
    let byte = |vector: usize| part + (vector * lanes + slot % lanes) * 4 + d % 4;
    [(byte(2 + group % 4), group / 4 * 4), (byte(group % 2), group / 2 * 2)]
}

/// Returns the number that code d of the key in `slot` stands for, without its scale.
pub fn key_code(block: &[u8], lanes: usize, head_dim: usize, d: usize, slot: usize) -> f64 {
    let [(low, at), (high, above)] = key_places(lanes, head_dim, d, slot);
    f64::from(block[low] >> at & 15 | (block[high] >> above & 3) << 4) - 32.0
}

/// Checks that both blocks hold the rotated head, with at most the errors of plain Q4_0. Keys have 2 more bits and much
/// smaller errors.
fn rotated_case(k: Isa, random: &mut Random, buffers: &mut [Guarded; 3]) {
    let (head_dim, slot, lanes) = (16 * random.between(1, 40), random.below(KV_BLOCK), k.lanes());
    let x = draw(head_dim, random);
    let what = |of: &str| format!("{} {of} of {head_dim} in slot {slot}, from {x:?}", k.name());
    let mut head: Vec<f32> = x.iter().map(|x| finite(*x)).collect();
    head.resize(q4_0::padded(head_dim), 0.0);
    hadamard(&mut head);
    let found = append(k, KvType::Q4_0, &x, slot, buffers);
    let bits = [q4_0::keys::KEY_BITS, q4_0::VALUE_BITS];
    for (i, (block, bits)) in found.into_iter().zip(bits).enumerate() {
        let what = || what(["key", "value"][i]);
        let mut written = vec![];
        for (b, part) in head.chunks(q4_0::SCALED).enumerate() {
            let place = q4_0::scale_index(bits, head_dim, b * q4_0::SCALED, slot);
            written.extend([place, place + 1]);
            let scale = f16_to_f32(u16::from_ne_bytes([block[place], block[place + 1]]));
            let codes: Vec<f32> = (b * q4_0::SCALED..(b + 1) * q4_0::SCALED)
                .map(|d| {
                    if i == 0 {
                        written.extend(key_places(lanes, head_dim, d, slot).map(|(at, _)| at));
                        return key_code(block, lanes, head_dim, d, slot) as f32;
                    }
                    let at = q4_0::value_index(lanes, d, slot);
                    written.push(at);
                    f32::from(block[at] >> (d / lanes % 2 * 4) & 15) - 8.0
                })
                .collect();
            let plain = plain_scale(part);
            let plain_code = |d: usize| (part[d] / plain).round_ties_even().clamp(-8.0, 7.0);
            let (ours, theirs) = (errors(part, scale, |d| codes[d]), errors(part, plain, plain_code));
            let size: f64 = part.iter().map(|x| f64::from(*x).powi(2)).sum();
            // Below 1e-4 half floats have fewer digits.
            let coarse = 32e-10 + 1e-6 * size;
            if plain != 0.0 {
                assert!(ours <= 1.01 * theirs + coarse, "{}: error {ours:e} and not {theirs:e}", what());
            }
            if i == 0 && scale.abs() < 65504.0 {
                // Numbers have errors of up to half a step; numbers beyond the largest code have up to one step.
                let most = 0.3 * 32.0 * (f64::from(plain) / 4.0).powi(2) + coarse;
                assert!(ours <= most, "{}: error {ours:e} and not {most:e}", what());
            }
        }
        assert_block(block, written.into_iter().map(|at| (at, block[at])), what);
    }
}

#[test]
fn append_writes_one_slot_of_rotated_codes_and_finite_scales() {
    on_every_isa("append to Q4_0", |k| {
        let (mut random, mut buffers) = (Random::new(15), [(); 3].map(|()| Guarded::new(1 << 15)));
        let cases = share(4_000);
        (0..cases).for_each(|_| rotated_case(k, &mut random, &mut buffers));
        2 * cases
    });
}

#[test]
fn append_writes_one_slot_of_16_bit_codes_and_its_scale() {
    on_every_isa("append to Int16", |k| {
        let (mut random, mut buffers) = (Random::new(4), [(); 3].map(|()| Guarded::new(1 << 14)));
        let cases = share(4_000);
        (0..cases).for_each(|_| int16_case(k, &mut random, &mut buffers));
        2 * cases
    });
}

#[test]
fn append_writes_one_slot_of_8_bit_codes_and_finite_scales() {
    on_every_isa("append to Q8_0", |k| {
        let (mut random, mut buffers) = (Random::new(14), [(); 3].map(|()| Guarded::new(1 << 14)));
        let cases = share(4_000);
        (0..cases).for_each(|_| codes_case(k, &mut random, &mut buffers));
        2 * cases
    });
}
