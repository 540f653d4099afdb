//! The register tile of AVX2 without VNNI in assembly: two panels by four tokens. The compiler's code for it keeps sums
//! on the stack, and takes 1.4 times as long (docs/lab/2026-11.md, "Products of bytes by AVX2 alone").
use super::avx2_bytes::MAGNITUDES;
use std::arch::asm;
use std::arch::x86_64::{__m256i, _mm256_setzero_si256};

/// Sums in a tile: [panel][token].
type Tile = [[__m256i; 4]; 2];

/// The instructions for token `$i` and columns 4g..4g+4 of both panels, whose codes are in {c0} and {c1}.
macro_rules! token {
    // Pairs of products become the sums.
    (first $g:literal, $i:literal) => {
        concat!(token!(load $g, $i), "vpmaddubsw {a", $i, "}, {c0}, {x}\nvpmaddubsw {b", $i, "}, {c1}, {x}\n")
    };
    // Pairs of products are added to the sums in 16 bits.
    (pairs $g:literal, $i:literal) => {
        concat!(token!(load $g, $i), token!(multiply "{x}", "{x}"), token!(add "vpaddw", $i))
    };
    // Products are added to the sums in 32 bits.
    (wide $g:literal, $i:literal) => {
        concat!(token!(load $g, $i), token!(multiply "{x}", "{x}"), token!(widen $i))
    };
    // The same for magnitudes. The bits of x are inverted where the codes are negative.
    (signed $g:literal, $i:literal) => {
        concat!(
            token!(load $g, $i),
            "vpxor {p0}, {x}, [{w0} + {signs} + 32*", $g, "]\nvpxor {p1}, {x}, [{w1} + {signs} + 32*", $g, "]\n",
            token!(multiply "{p0}", "{p1}"), token!(widen $i)
        )
    };
    (load $g:literal, $i:literal) => {
        concat!("vpbroadcastd {x}, dword ptr [{xs} + 32*", $i, " + 4*", $g, "]\n")
    };
    (multiply $x0:literal, $x1:literal) => {
        concat!("vpmaddubsw {p0}, {c0}, ", $x0, "\nvpmaddubsw {p1}, {c1}, ", $x1, "\n")
    };
    (widen $i:literal) => {
        concat!("vpmaddwd {p0}, {p0}, {ones}\nvpmaddwd {p1}, {p1}, {ones}\n", token!(add "vpaddd", $i))
    };
    (add $add:literal, $i:literal) => {
        concat!($add, " {a", $i, "}, {a", $i, "}, {p0}\n", $add, " {b", $i, "}, {b", $i, "}, {p1}\n")
    };
}

/// The instructions for columns 4g..4g+4.
macro_rules! group {
    ($kind:ident $g:literal) => {
        concat!(
            "vmovdqu {c0}, [{w0} + 32*", $g, "]\nvmovdqu {c1}, [{w1} + 32*", $g, "]\n",
            token!($kind $g, 0), token!($kind $g, 1), token!($kind $g, 2), token!($kind $g, 3)
        )
    };
}

/// Runs the groups' instructions. `$out` is the direction of the sums, and the last operands are those of the kind.
macro_rules! tile {
    ($out:ident $sums:ident, $w:ident, $x:ident, [$($group:expr),*], $($operand:tt)*) => {{
        let [[a0, a1, a2, a3], [b0, b1, b2, b3]] = &mut $sums;
        asm!(
            $($group,)*
            w0 = in(reg) $w[0], w1 = in(reg) $w[1], xs = in(reg) $x,
            a0 = $out(ymm_reg) *a0, a1 = $out(ymm_reg) *a1, a2 = $out(ymm_reg) *a2, a3 = $out(ymm_reg) *a3,
            b0 = $out(ymm_reg) *b0, b1 = $out(ymm_reg) *b1, b2 = $out(ymm_reg) *b2, b3 = $out(ymm_reg) *b3,
            c0 = out(ymm_reg) _, c1 = out(ymm_reg) _, x = out(ymm_reg) _, p0 = out(ymm_reg) _, p1 = out(ymm_reg) _,
            $($operand)*
            options(pure, readonly, nostack, preserves_flags)
        )
    }};
}

/// Returns the 16-bit sums of pairs of products over 32 columns. Panel j's codes are at `w[j]`, token i's activations at
/// `x + 32 * i`.
///
/// # Safety
/// The pointers lead to 32 columns of two panels and four tokens.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn pair_sums(w: [*const u8; 2], x: *const i8) -> Tile {
    let mut sums = [[_mm256_setzero_si256(); 4]; 2];
    // SAFETY: guaranteed by the caller.
    unsafe {
        tile!(
            out sums, w, x,
            [
                group!(first 0), group!(pairs 1), group!(pairs 2), group!(pairs 3),
                group!(pairs 4), group!(pairs 5), group!(pairs 6), group!(pairs 7)
            ],
        );
    }
    sums
}

/// Adds the products of 16 columns to `sums` in 32 bits. 8-bit codes are magnitudes and signs; codes of 7 bits are
/// unsigned.
///
/// # Safety
/// The pointers lead to 16 columns of two panels and four tokens.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn add_products<const BITS: u32>(
    mut sums: Tile,
    w: [*const u8; 2],
    x: *const i8,
    ones: __m256i,
) -> Tile {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match BITS {
            8 => tile!(
                inout sums, w, x, [group!(signed 0), group!(signed 1), group!(signed 2), group!(signed 3)],
                ones = in(ymm_reg) ones, signs = const MAGNITUDES,
            ),
            _ => tile!(
                inout sums, w, x, [group!(wide 0), group!(wide 1), group!(wide 2), group!(wide 3)],
                ones = in(ymm_reg) ones,
            ),
        }
    }
    sums
}
