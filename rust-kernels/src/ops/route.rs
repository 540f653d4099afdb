//! Which experts a row chooses, by the logits of its router, and how it weighs them. It depends on nothing but the row.
use super::experts::Chosen;
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Choice, Operands, Program};
use crate::simd::{Kernel, Simd, exp};

/// What weights out of sigmoids are divided by at least: the smallest normal number in f16, as in llama.cpp.
const LEAST_SUM: f32 = 1.0 / 16384.0;

/// How many experts' keys of a group are its own key together.
const GROUP_BEST: usize = 2;

/// Experts in groups of equally many, of which a row chooses some, and experts of those alone.
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
    /// Scores are sigmoids of the logits; otherwise their softmax.
    sigmoid: bool,
    /// Weights are the scores divided by their sum over the chosen; otherwise the scores as they are.
    divided: bool,
    /// Added to the scores for the choice alone.
    bias: Option<usize>,
    scale: f32,
    /// Each expert's weight is multiplied by its own.
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
            // SAFETY: widths were checked at decode; rows of buffers are whole vectors long.
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

/// Chooses `used` of `experts` by score + bias; of equals the lower number, and whatever is NaN last. With `sigmoid`, the
/// scores are sigmoids of the logits, and the weights are score * scale / (sum of the chosen scores); otherwise scores are
/// their softmax, and the weights are scale * softmax over the chosen, which is the softmax over all divided by its sum.
/// Where a logit is NaN, all weights are. Where there are `scales`, each weight is times its expert's. Of several `groups` those are
/// chosen whose two largest score + bias are the most together, of equals the lower, and experts of those alone.
///
/// # Safety
/// `logits` and, where they are not null, `bias` and `scales` hold `experts` floats, `logits` in whole vectors; `scratch` holds three
/// times as many in vectors of 16, and `out` 2 * `used`: the numbers, ascending, then their weights. 1 <= used <= experts. `groups` are of
/// equally many experts, of two at least where there are several, and those that are used have `used` experts.
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
            // Where neither a bias nor another expert is added, the order of the logits is that of their softmax.
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

/// The softmax of x in its place.
///
/// # Safety
/// `x` holds `n` floats, in whole vectors.
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

/// The places of the largest keys, ascending; of equal keys the lower places.
fn choose(keys: &[f32], places: &mut [f32]) {
    let mut count = 0;
    for (i, key) in keys.iter().enumerate() {
        // Best first while choosing: after all that are as large.
        let before = places[..count].partition_point(|place| keys[*place as usize] >= *key);
        if before < places.len() {
            count = (count + 1).min(places.len());
            places[before..count].rotate_right(1);
            places[before] = i as f32;
        }
    }
    places.sort_unstable_by(f32::total_cmp);
}

/// Keys outside of the `used` groups of the largest keys become smaller than all that are numbers. A group's key is that of its best
/// experts together. `best` has room for a key a group and the groups that are used.
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
