//! Activation functions of feed-forward layers, of the short convolution and of gates.
use crate::bail;
use crate::error::Result;
use crate::program::Operands;
use crate::simd::{Simd, exp};

/// The activation of a feed-forward layer. The variants have the order of the codes in engine/plan/operands.ts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    Silu,
    /// GELU with the tanh approximation.
    Gelu,
    /// GELU with the error function.
    GeluErf,
    SquaredRelu,
    Tanh,
    /// gpt-oss's gated activation: min(g, 7) * sigmoid(1.702 min(g, 7)) * (clamp(u, -7, 7) + 1).
    SwigluOai,
    Relu,
}

impl Activation {
    pub const ALL: [Self; 7] =
        [Self::Silu, Self::Gelu, Self::GeluErf, Self::SquaredRelu, Self::Tanh, Self::SwigluOai, Self::Relu];

    /// Decodes the activation of a unit, and with a gate the bound of its factors; 0 means none.
    ///
    /// # Errors
    /// As `of_code`; or only SwiGLU may have a bound.
    pub fn decode(o: &mut Operands, gated: bool) -> Result<(Self, f32)> {
        let activation = Self::of_code(o.words.u32()?, gated)?;
        let limit = if gated { o.f32()? } else { 0.0 };
        if !(limit >= 0.0 && limit.is_finite()) || (limit > 0.0 && activation != Self::Silu) {
            bail!("only SwiGLU's factors may be bounded, by a positive number (got {limit})");
        }
        Ok((activation, limit))
    }

    /// # Errors
    /// The code is unknown, or the activation needs a gate and there is none.
    pub fn of_code(code: u32, gated: bool) -> Result<Self> {
        match Self::ALL.get(code as usize) {
            Some(Self::SwigluOai) if !gated => {
                bail!("this activation needs a gate")
            }
            Some(activation) => Ok(*activation),
            None => bail!("unknown activation code {code}"),
        }
    }
}

/// The activation SiLU: x / (1 + e^-x).
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    gated(s, x, s.sub(s.splat(0.0), x))
}

/// Multiplies x by a sigmoid: x * sigmoid(-z) = x / (1 + e^z).
#[inline(always)]
fn gated<S: Simd>(s: S, x: S::F, z: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, z)))
}

/// A function of one number, applied to vectors.
pub(crate) trait Function {
    fn of<S: Simd>(s: S, x: S::F) -> S::F;
}

pub(crate) struct Silu;
pub(crate) struct Gelu;
pub(crate) struct GeluErf;
pub(crate) struct SquaredRelu;
pub(crate) struct Tanh;
pub(crate) struct Relu;

impl Function for Silu {
    #[inline(always)]
    fn of<S: Simd>(s: S, x: S::F) -> S::F {
        silu(s, x)
    }
}

impl Function for Gelu {
    /// GELU with tanh: x / 2 * (1 + tanh(z)) = x * sigmoid(2 z) with z = sqrt(2 / pi) (x + 0.044715 x^3).
    #[inline(always)]
    fn of<S: Simd>(s: S, x: S::F) -> S::F {
        const TWICE: f32 = -1.595_769; // -2 sqrt(2 / pi)
        let cubic = s.fma(s.mul(x, x), s.splat(TWICE * 0.044_715), s.splat(TWICE));
        gated(s, x, s.mul(x, cubic))
    }
}

impl Function for GeluErf {
    /// GELU with erf: x * (1 + erf(x / sqrt(2))) / 2 = max(x, 0) - |x| * erfc(|x| / sqrt(2)) / 2.
    #[inline(always)]
    fn of<S: Simd>(s: S, x: S::F) -> S::F {
        let size = s.abs(x);
        let half = s.mul(s.splat(0.5), erfc(s, s.mul(size, s.splat(std::f32::consts::FRAC_1_SQRT_2))));
        s.fnma(size, half, s.max(s.splat(0.0), x))
    }
}

impl Function for SquaredRelu {
    #[inline(always)]
    fn of<S: Simd>(s: S, x: S::F) -> S::F {
        let x = s.max(s.splat(0.0), x);
        s.mul(x, x)
    }
}

impl Function for Tanh {
    /// tanh(x) = 1 - 2 / (1 + e^2x). NaN stays NaN.
    #[inline(always)]
    fn of<S: Simd>(s: S, x: S::F) -> S::F {
        let one = s.splat(1.0);
        let x = s.max(s.splat(-20.0), s.min(s.splat(20.0), x));
        let tanh = s.sub(one, s.div(s.splat(2.0), s.add(one, exp(s, s.add(x, x)))));
        s.add(tanh, s.sub(x, x))
    }
}

impl Function for Relu {
    #[inline(always)]
    fn of<S: Simd>(s: S, x: S::F) -> S::F {
        s.max(s.splat(0.0), x)
    }
}

/// SwiGLU with bounds: min(silu(gate), limit) * clamp(up, -limit, limit). NaN stays NaN.
#[inline(always)]
pub(crate) fn limited_swiglu<S: Simd>(s: S, gate: S::F, up: S::F, limit: f32) -> S::F {
    let (least, most) = (s.splat(-limit), s.splat(limit));
    s.mul(s.min(most, silu(s, gate)), s.max(least, s.min(most, up)))
}

/// gpt-oss's gated activation of `gate` and `up`, as at `Activation::SwigluOai`. NaN stays NaN.
#[inline(always)]
pub(crate) fn swiglu_oai<S: Simd>(s: S, gate: S::F, up: S::F) -> S::F {
    const LIMIT: f32 = 7.0;
    let gate = s.min(s.splat(LIMIT), gate);
    let up = s.max(s.splat(-LIMIT), s.min(s.splat(LIMIT), up));
    s.mul(gated(s, gate, s.mul(gate, s.splat(-1.702))), s.add(up, s.splat(1.0)))
}

/// erfc(z) = t * e^(q(t) - z^2) for z >= 0, with t = 1 / (1 + z / 2). The polynomial q was fitted at Chebyshev nodes
/// up to z = 9, where its relative error is at most 4.2e-8. Beyond z = 9 the result is 0.
#[inline(always)]
fn erfc<S: Simd>(s: S, z: S::F) -> S::F {
    const Q: [f32; 10] = [
        0.135_424_72,
        -0.628_631_7,
        1.032_769_9,
        -0.529_553_3,
        -0.219_760_43,
        0.076_345_52,
        0.008_687_084,
        0.392_154_95,
        0.997_978_3,
        -1.265_415_1,
    ];
    let t = s.div(s.splat(1.0), s.fma(z, s.splat(0.5), s.splat(1.0)));
    let mut q = s.splat(Q[0]);
    for c in &Q[1..] {
        q = s.fma(q, t, s.splat(*c));
    }
    s.mul(t, exp(s, s.fnma(z, z, q)))
}
