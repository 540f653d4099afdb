//! Chooses the experts of each row and computes their weights, from that row's router logits alone.
use super::experts::Chosen;
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Choice, Operands, Program};
use crate::simd::{Kernel, Simd, exp};

/// Lower bound of the divisor of sigmoid weights: the smallest normal number in f16, as in llama.cpp.
const LEAST_SUM: f32 = 1.0 / 16384.0;

/// A group's key is the sum of this many of its experts' keys.
const GROUP_BEST: usize = 2;

/// Experts in groups of equal size. A row first chooses groups, then experts of these groups.
#[derive(Clone, Copy)]
pub struct Groups {
    pub count: usize,
    pub used: usize,
}

impl Groups {
    pub const ONE: Self = Self { count: 1, used: 1 };

    fn check(self, Choice { experts, used }: Choice) -> Result<()> {
        let Self { count, used: groups } = self;
        let each = experts / count.max(1);
        let fit = experts == count * each && (count == 1 || each >= GROUP_BEST);
        if !fit || !(1..=count).contains(&groups) || used > groups * each {
            bail!("{used} of {experts} experts cannot be chosen out of {groups} of {count} groups");
        }
        Ok(())
    }
}

pub struct Route {
    logits: usize,
    /// Whether scores are sigmoids of the logits. Otherwise they are their softmax.
    sigmoid: bool,
    /// Whether weights are divided by their sum over the chosen experts.
    divided: bool,
    /// Added to the scores for the choice only.
    bias: Option<usize>,
    scale: f32,
    /// A factor per expert, which multiplies its weight.
    scales: Option<usize>,
    groups: Groups,
    chosen: Chosen,
}

impl Decode for Route {
    fn decode(o: &mut Operands) -> Result<Self> {
        let logits = o.step_float(None)?;
        let (bias, sigmoid, divided) = (o.optional()?, o.flag()?, o.flag()?);
        let (scale, scales) = (o.f32()?, o.optional()?);
        let groups = Groups { count: o.size()?, used: o.size()? };
        let chosen = Chosen::decode(o)?;
        let experts = chosen.choice.experts;
        o.is_float(logits, Some(experts))?;
        groups.check(chosen.choice)?;
        if let Some(bias) = bias {
            o.vector(bias, experts)?;
        }
        if let Some(scales) = scales {
            o.vector(scales, experts)?;
        }
        Ok(Self { logits, sigmoid, divided, bias, scale, scales, groups, chosen })
    }
}

impl Op for Route {
    fn scratch(&self, _: &Program) -> usize {
        3 * self.chosen.choice.experts.next_multiple_of(16)
    }

    fn run(&self, run: &Run, work: &Work) {
        let Choice { experts, used } = self.chosen.choice;
        let vector = |tensor: Option<usize>| tensor.map_or(std::ptr::null(), |tensor| run.vector(tensor, experts));
        let (bias, scales) = (vector(self.bias), vector(self.scales));
        for row in work.items(run.tokens()).flatten() {
            let (logits, out) = (run.float(self.logits, row), self.chosen.row(run, row));
            let &Self { sigmoid, divided, scale, groups, .. } = self;
            // SAFETY: decoding checked the widths; rows of buffers are padded to whole vectors.
            unsafe {
                let scratch = work.scratch;
                run.isa.run(RouteRow {
                    logits,
                    experts,
                    bias,
                    sigmoid,
                    divided,
                    scale,
                    scales,
                    groups,
                    used,
                    out,
                    scratch,
                });
            }
        }
    }
}

/// Chooses the `used` of `experts` experts with the largest score + bias. Ties go to the lower number; NaN comes
/// last.
///
/// With `sigmoid`, scores are sigmoids of the logits, and weights are score * scale / (sum of the chosen scores).
/// Otherwise scores are their softmax, and weights are scale * softmax over the chosen experts. Without `divided`,
/// weights are not divided by the sum over the chosen experts. If a logit is NaN, all weights are NaN. `scales`
/// multiply each weight by its expert's factor.
///
/// With several `groups`, it first chooses those with the largest sum of their two largest score + bias, lower groups
/// first among ties. It then chooses among their experts only.
///
/// # Safety
/// `logits`, and `bias` and `scales` unless null, hold `experts` floats, `logits` padded to whole vectors. `scratch`
/// holds three times as many, each padded to 16. `out` holds 2 * `used`: the numbers, ascending, then their weights.
/// 1 <= used <= experts. `groups` have the same size, at least two if there are several, and the used groups have at
/// least `used` experts.
pub struct RouteRow {
    pub logits: *const f32,
    pub experts: usize,
    pub bias: *const f32,
    pub sigmoid: bool,
    pub divided: bool,
    pub scale: f32,
    pub scales: *const f32,
    pub groups: Groups,
    pub used: usize,
    pub out: *mut f32,
    pub scratch: *mut f32,
}

impl Kernel for RouteRow {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { logits, experts, bias, sigmoid, divided, scale, scales, groups, used, out, scratch } = self;
        let padded = experts.next_multiple_of(16);
        unsafe {
            let (scores, keys) = (scratch, scratch.add(padded));
            if sigmoid {
                for i in (0..experts).step_by(S::LANES) {
                    let e = exp(s, s.sub(s.splat(0.0), s.load(logits.add(i))));
                    s.store(scores.add(i), s.div(s.splat(1.0), s.add(s.splat(1.0), e)));
                }
            } else {
                scores.copy_from_nonoverlapping(logits, experts);
            }
            keys.copy_from_nonoverlapping(scores, experts);
            // Without a bias or groups, the order of the logits is that of their softmax.
            if !sigmoid && (!bias.is_null() || groups.count > 1) {
                softmax(s, keys, experts);
            }
            if !bias.is_null() {
                for i in 0..experts {
                    *keys.add(i) += *bias.add(i);
                }
            }
            let mut nan = false;
            for i in 0..experts {
                let key = *keys.add(i);
                nan |= (*logits.add(i)).is_nan();
                *keys.add(i) = if key.is_nan() || (*logits.add(i)).is_nan() { f32::NEG_INFINITY } else { key };
            }
            let keys = std::slice::from_raw_parts_mut(keys, experts);
            if groups.count > 1 {
                let best = std::slice::from_raw_parts_mut(scratch.add(2 * padded), groups.count + groups.used);
                keep_groups(keys, best, groups.used);
            }
            let out = std::slice::from_raw_parts_mut(out, 2 * used);
            let (numbers, weights) = out.split_at_mut(used);
            choose(keys, numbers);
            let score = |number: &f32| *scores.add(*number as usize);
            let (mut sum, top) = (0.0, numbers.iter().map(score).fold(f32::NEG_INFINITY, f32::max));
            for (weight, number) in weights.iter_mut().zip(&*numbers) {
                *weight = if sigmoid { score(number) } else { (score(number) - top).exp() };
                sum += *weight;
            }
            let total = match (sigmoid, divided) {
                (true, true) => sum.max(LEAST_SUM),
                (true, false) => 1.0,
                (false, true) => sum,
                (false, false) => (0..experts).map(|i| (*scores.add(i) - top).exp()).sum(),
            };
            let by = if nan { f32::NAN } else { scale / total };
            for (weight, number) in weights.iter_mut().zip(&*numbers) {
                *weight *= by;
                if !scales.is_null() {
                    *weight *= *scales.add(*number as usize);
                }
            }
        }
    }
}

/// Replaces x by its softmax.
///
/// # Safety
/// `x` holds `n` floats, padded to whole vectors.
#[inline(always)]
unsafe fn softmax<S: Simd>(s: S, x: *mut f32, n: usize) {
    unsafe {
        let top = (0..n).map(|i| *x.add(i)).fold(f32::NEG_INFINITY, f32::max);
        for i in (0..n).step_by(S::LANES) {
            s.store(x.add(i), exp(s, s.sub(s.load(x.add(i)), s.splat(top))));
        }
        let sum = (0..n).map(|i| *x.add(i)).sum();
        for i in (0..n).step_by(S::LANES) {
            s.store(x.add(i), s.div(s.load(x.add(i)), s.splat(sum)));
        }
    }
}

/// The indices of the largest keys, ascending. Among equal keys the lower index wins.
fn choose(keys: &[f32], places: &mut [f32]) {
    let mut count = 0;
    for (i, key) in keys.iter().enumerate() {
        // While choosing, the best come first: the insertion point is behind all keys that are at least as large.
        let before = places[..count].partition_point(|place| keys[*place as usize] >= *key);
        if before < places.len() {
            count = (count + 1).min(places.len());
            places[before..count].rotate_right(1);
            places[before] = i as f32;
        }
    }
    places.sort_unstable_by(f32::total_cmp);
}

/// Sets keys outside of the `used` best groups to -infinity. A group's key is the sum of its GROUP_BEST best keys.
/// `best` has room for one key per group and the used groups.
fn keep_groups(keys: &mut [f32], best: &mut [f32], used: usize) {
    let (sums, places) = best.split_at_mut(best.len() - used);
    let each = keys.len() / sums.len();
    for (sum, group) in sums.iter_mut().zip(keys.chunks_exact(each)) {
        let mut top = [f32::NEG_INFINITY; GROUP_BEST];
        for key in group {
            top = if *key > top[0] { [*key, top[0]] } else { [top[0], top[1].max(*key)] };
        }
        *sum = top[0] + top[1];
    }
    choose(sums, places);
    let mut kept = places.iter().map(|place| *place as usize).peekable();
    for (number, group) in keys.chunks_exact_mut(each).enumerate() {
        if kept.next_if_eq(&number).is_none() {
            group.fill(f32::NEG_INFINITY);
        }
    }
}
