//! The register tile of AVX2 without VNNI in assembly: two panels by four tokens, block by block. The compiler would
//! keep integer sums on the stack and compute all addresses again for each block (docs/lab/2026-11.md, "Products of
//! bytes by AVX2 alone").
use super::avx2_bytes::MAGNITUDES;
use super::{BIAS_BITS, RegisterTile, UNIT_BLOCK_CODES, UNIT_BLOCK_FACTORS, UNIT_PANEL_CODES, UNIT_PANEL_FACTORS};
use std::arch::asm;
use std::arch::x86_64::{__m256i, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_si256};
use std::mem::MaybeUninit;

/// Sums in a tile: [panel][token].
type Tile = [[__m256i; 4]; 2];

/// The instructions for a group of columns, 4g..4g+4. The group's codes are at 32 * `$at`; those of the two panels go
/// to {c0} and {c1}.
macro_rules! group {
    // Codes as magnitudes and signs. The bits of x are inverted if the code is negative. `$sum`: as in `signed`.
    (signed $at:literal $g:literal $sum:ident) => {
        concat!(group!(codes $at), signed!($at $g $sum 0 1), signed!($at $g $sum 2 3))
    };
    ($kind:ident $at:literal $g:literal) => {
        concat!(group!(codes $at), token!($kind $g 0), token!($kind $g 1), token!($kind $g 2), token!($kind $g 3))
    };
    (codes $at:literal) => {
        concat!("vmovdqu {c0}, [{w0} + 32*", $at, "]\nvmovdqu {c1}, [{w1} + 32*", $at, "]\n")
    };
}

/// The instructions for one group and token `$i`.
macro_rules! token {
    // Pairs of products become the sums.
    (first $g:literal $i:literal) => {
        concat!(
            token!(load "{x0}" $g $i),
            "vpmaddubsw {a", $i, "}, {c0}, {x0}\nvpmaddubsw {b", $i, "}, {c1}, {x0}\n"
        )
    };
    // Pairs of products are added to the sums in 16 bits.
    (pairs $g:literal $i:literal) => {
        concat!(token!(products $g $i), token!(add "vpaddw" $i))
    };
    // Products are added to the sums in 32 bits.
    (wide $g:literal $i:literal) => {
        concat!(
            token!(products $g $i),
            "vpmaddwd {p0}, {p0}, {ones}\nvpmaddwd {p1}, {p1}, {ones}\n",
            token!(add "vpaddd" $i)
        )
    };
    (products $g:literal $i:literal) => {
        concat!(token!(load "{x0}" $g $i), "vpmaddubsw {p0}, {c0}, {x0}\nvpmaddubsw {p1}, {c1}, {x0}\n")
    };
    (load $to:literal $g:literal $i:literal) => {
        concat!("vpbroadcastd ", $to, ", dword ptr [{x} + 32*", $i, " + 4*", $g, "]\n")
    };
    (add $add:literal $i:literal) => {
        concat!($add, " {a", $i, "}, {a", $i, "}, {p0}\n", $add, " {b", $i, "}, {b", $i, "}, {p1}\n")
    };
}

/// The instructions for one group and tokens `$i` and `$k`, with signed codes. They add the products to the sums
/// (`next`) or to {a3} and {b3} (`first`).
macro_rules! signed {
    ($at:literal $g:literal $sum:ident $i:literal $k:literal) => {
        concat!(
            token!(load "{x0}" $g $i), token!(load "{x1}" $g $k),
            signed!(invert "{p0}" "{x0}" "{w0}" $at), signed!(invert "{p1}" "{x0}" "{w1}" $at),
            signed!(invert "{p2}" "{x1}" "{w0}" $at), signed!(invert "{x1}" "{x1}" "{w1}" $at),
            "vpmaddubsw {p0}, {c0}, {p0}\nvpmaddubsw {p1}, {c1}, {p1}\n",
            "vpmaddubsw {p2}, {c0}, {p2}\nvpmaddubsw {x1}, {c1}, {x1}\n",
            "vpmaddwd {p0}, {p0}, {ones}\nvpmaddwd {p1}, {p1}, {ones}\n",
            "vpmaddwd {p2}, {p2}, {ones}\nvpmaddwd {x1}, {x1}, {ones}\n",
            signed!($sum "a" $i "{p0}"), signed!($sum "b" $i "{p1}"),
            signed!($sum "a" $k "{p2}"), signed!($sum "b" $k "{x1}")
        )
    };
    (invert $to:literal $x:literal $w:literal $at:literal) => {
        concat!("vpxor ", $to, ", ", $x, ", [", $w, " + {signs} + 32*", $at, "]\n")
    };
    (first $panel:literal $i:literal $products:literal) => {
        concat!("vpaddd {", $panel, $i, "}, {", $panel, "3}, ", $products, "\n")
    };
    (next $panel:literal $i:literal $products:literal) => {
        concat!("vpaddd {", $panel, $i, "}, {", $panel, $i, "}, ", $products, "\n")
    };
}

/// The instructions of `float`'s `$part` for each token.
macro_rules! tokens {
    ($part:ident) => {
        concat!(float!($part 0), float!($part 1), float!($part 2), float!($part 3))
    };
}

/// The instructions that convert the sums to floats and add them to the sums in memory.
macro_rules! float {
    // Converts 16-bit sums to 32-bit sums.
    (widen $i:literal) => {
        concat!("vpmaddwd {a", $i, "}, {a", $i, "}, {ones}\nvpmaddwd {b", $i, "}, {b", $i, "}, {ones}\n")
    };
    // Sums start from the token's correction.
    (start $i:literal) => {
        concat!("vpbroadcastd {a", $i, "}, dword ptr [{corrections} + 4*", $i, "]\nvmovdqa {b", $i, "}, {a", $i, "}\n")
    };
    (correct $i:literal) => {
        concat!("vpbroadcastd {x0}, dword ptr [{corrections} + 4*", $i, "]\n", float!(plus $i "{x0}"))
    };
    (bias $i:literal) => {
        float!(plus $i "{bias}")
    };
    (plus $i:literal $number:literal) => {
        concat!(
            "vpaddd {a", $i, "}, {a", $i, "}, ", $number, "\nvpaddd {b", $i, "}, {b", $i, "}, ", $number, "\n"
        )
    };
    // Stores the sums of the first half of a block in memory.
    (save $i:literal) => {
        concat!("vmovdqu [{half} + 64*", $i, "], {a", $i, "}\nvmovdqu [{half} + 64*", $i, " + 32], {b", $i, "}\n")
    };
    (restore $i:literal) => {
        concat!(
            "vpaddd {a", $i, "}, {a", $i, "}, [{half} + 64*", $i, "]\n",
            "vpaddd {b", $i, "}, {b", $i, "}, [{half} + 64*", $i, " + 32]\n"
        )
    };
    // The factors are in {c0}, {c1} (scales) and {p0}, {p1} (biases).
    (scale $i:literal) => {
        concat!(
            "vfmadd213ps {a", $i, "}, {c0}, {p0}\nvfmadd213ps {b", $i, "}, {c1}, {p1}\n",
            "vbroadcastss {x0}, dword ptr [{scales} + 4*", $i, "]\n",
            "vfmadd213ps {a", $i, "}, {x0}, [{sums} + 64*", $i, "]\n",
            "vfmadd213ps {b", $i, "}, {x0}, [{sums} + 64*", $i, " + 32]\n"
        )
    };
    (min $i:literal) => {
        concat!(
            "vbroadcastss {x0}, dword ptr [{corrections} + 4*", $i, "]\n",
            "vfnmadd231ps {a", $i, "}, {x0}, [{f0} + 64]\nvfnmadd231ps {b", $i, "}, {x0}, [{f0} + {factors} + 64]\n"
        )
    };
    (store $i:literal) => {
        concat!("vmovups [{sums} + 64*", $i, "], {a", $i, "}\nvmovups [{sums} + 64*", $i, " + 32], {b", $i, "}\n")
    };
    (factors) => {
        concat!(
            "vmovups {c0}, [{f0}]\nvmovups {c1}, [{f0} + {factors}]\n",
            "vmovups {p0}, [{f0} + 32]\nvmovups {p1}, [{f0} + {factors} + 32]\n"
        )
    };
}

/// The instructions for 32 columns. They sum pairs of products in 16 bits.
macro_rules! pairs {
    () => {
        concat!(pairs!(low), group!(pairs 4 4), pairs!(rest))
    };
    (low) => {
        concat!(group!(first 0 0), group!(pairs 1 1), group!(pairs 2 2), group!(pairs 3 3))
    };
    (high) => {
        concat!(group!(first 4 4), pairs!(rest))
    };
    (rest) => {
        concat!(group!(pairs 5 5), group!(pairs 6 6), group!(pairs 7 7))
    };
}

/// The instructions for one block of signed codes of one panel, and token `$i`.
macro_rules! row {
    // The codes are in {c0} to {c7}, and the group's magnitudes in {magnitudes}.
    (products $i:literal $g:literal) => {
        concat!(
            "vpbroadcastd {x0}, dword ptr [{x} + 32*", $i, " + 4*", $g, "]\nvpsignb {x0}, {x0}, {c", $g, "}\n",
            "vpmaddubsw {x0}, {magnitudes}, {x0}\nvpmaddwd {x0}, {x0}, {ones}\nvpaddd {a", $i, "}, {a", $i, "}, {x0}\n"
        )
    };
    // The scale is in {c0}, the bias in {c1}.
    (add $i:literal) => {
        concat!(
            "vfmadd213ps {a", $i, "}, {c0}, {c1}\nvbroadcastss {x0}, dword ptr [{scales} + 4*", $i, "]\n",
            "vfmadd213ps {a", $i, "}, {x0}, [{sums} + 32*", $i, "]\nvmovups [{sums} + 32*", $i, "], {a", $i, "}\n"
        )
    };
    ($g:literal) => {
        concat!(
            "vpxor {c", $g, "}, {c", $g, "}, {offset}\nvpabsb {magnitudes}, {c", $g, "}\n",
            row!(products 0 $g), row!(products 1 $g), row!(products 2 $g), row!(products 3 $g)
        )
    };
}

/// Runs the given instructions for each block, then those that add the sums to the sums in memory. Also prefetches the
/// next tile's tokens.
macro_rules! add_blocks {
    ($tile:ident, $sums:ident, [$($text:expr),*], $($operand:tt)*) => {
        asm!(
            "2:",
            "prefetcht0 [{x} + {next}]\nprefetcht0 [{x} + {next} + 64]\nprefetcht0 [{scales} + {next}]\n",
            $($text,)*
            float!(factors), tokens!(scale), add_blocks!(@min $($operand)*), tokens!(store),
            "add {w0}, {block}\nadd {w1}, {block}\nadd {f0}, {factors_of_block}\nadd {corrections}, {tokens}\n",
            "lea {x}, [{x} + 8*{tokens}]\nlea {scales}, [{scales} + 2*{tokens}]\nadd {scales}, {tokens}\n",
            "dec {blocks}\njnz 2b",
            w0 = inout(reg) $tile.codes => _, w1 = inout(reg) $tile.codes.add(UNIT_PANEL_CODES) => _,
            f0 = inout(reg) $tile.factors => _, x = inout(reg) $tile.x => _,
            scales = inout(reg) $tile.scales => _, corrections = inout(reg) $tile.corrections => _,
            blocks = inout(reg) $tile.blocks => _, tokens = in(reg) 4 * $tile.width, next = in(reg) $tile.next,
            sums = in(reg) $sums,
            a0 = out(ymm_reg) _, a1 = out(ymm_reg) _, a2 = out(ymm_reg) _, a3 = out(ymm_reg) _,
            b0 = out(ymm_reg) _, b1 = out(ymm_reg) _, b2 = out(ymm_reg) _, b3 = out(ymm_reg) _,
            c0 = out(ymm_reg) _, c1 = out(ymm_reg) _, x0 = out(ymm_reg) _, p0 = out(ymm_reg) _, p1 = out(ymm_reg) _,
            ones = in(ymm_reg) _mm256_set1_epi16(1),
            block = const UNIT_BLOCK_CODES, factors_of_block = const 4 * UNIT_BLOCK_FACTORS,
            factors = const 4 * UNIT_PANEL_FACTORS,
            $($operand)*
            options(nostack)
        )
    };
    (@min bias $($rest:tt)*) => { tokens!(min) };
    (@min $($rest:tt)*) => { "" };
}

/// Returns the 16-bit sums of pairs of products over 32 columns. Panel j's codes are at `w[j]`, token i's activations at
/// `x + 32 * i`. Only the measurement of the int8 peak uses it.
///
/// # Safety
/// The pointers lead to 32 columns of two panels and four tokens.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn pair_sums(w: [*const u8; 2], x: *const i8) -> Tile {
    let mut sums = [[_mm256_setzero_si256(); 4]; 2];
    let [[a0, a1, a2, a3], [b0, b1, b2, b3]] = &mut sums;
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            pairs!(),
            w0 = in(reg) w[0], w1 = in(reg) w[1], x = in(reg) x,
            a0 = out(ymm_reg) *a0, a1 = out(ymm_reg) *a1, a2 = out(ymm_reg) *a2, a3 = out(ymm_reg) *a3,
            b0 = out(ymm_reg) *b0, b1 = out(ymm_reg) *b1, b2 = out(ymm_reg) *b2, b3 = out(ymm_reg) *b3,
            c0 = out(ymm_reg) _, c1 = out(ymm_reg) _, x0 = out(ymm_reg) _, p0 = out(ymm_reg) _, p1 = out(ymm_reg) _,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    sums
}

/// `Simd::add_tile` for codes of 2 to 5, 7 and 8 bits.
///
/// # Safety
/// As `Simd::add_tile`.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) unsafe fn add_tile(bits: u32, has_min: bool, tile: RegisterTile, sums: *mut f32) {
    let bias = _mm256_set1_epi32(BIAS_BITS);
    let mut half = MaybeUninit::<Tile>::uninit();
    let half = half.as_mut_ptr();
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (bits, has_min) {
            (8, _) => add_blocks!(
                tile, sums,
                [
                    "vmovdqu {a3}, [{f0} + 64]\nvmovdqu {b3}, [{f0} + {factors} + 64]\n",
                    group!(signed 0 0 first), group!(signed 1 1 next), group!(signed 2 2 next), group!(signed 3 3 next),
                    group!(signed 8 4 next), group!(signed 9 5 next), group!(signed 10 6 next), group!(signed 11 7 next)
                ],
                x1 = out(ymm_reg) _, p2 = out(ymm_reg) _, signs = const MAGNITUDES,
            ),
            (7, _) => add_blocks!(
                tile,
                sums,
                [
                    tokens!(start),
                    group!(wide 0 0),
                    group!(wide 1 1),
                    group!(wide 2 2),
                    group!(wide 3 3),
                    group!(wide 4 4),
                    group!(wide 5 5),
                    group!(wide 6 6),
                    group!(wide 7 7)
                ],
            ),
            (5, true) => add_blocks!(
                tile, sums,
                [
                    pairs!(low), tokens!(widen), tokens!(save), pairs!(high), tokens!(widen), tokens!(restore),
                    tokens!(bias)
                ],
                bias = in(ymm_reg) bias, half = in(reg) half,
            ),
            (5, false) => add_blocks!(
                tile, sums,
                [
                    pairs!(low), tokens!(widen), tokens!(save), pairs!(high), tokens!(widen), tokens!(restore),
                    tokens!(correct)
                ],
                half = in(reg) half,
            ),
            (_, true) => add_blocks!(
                tile, sums, [pairs!(), tokens!(widen), tokens!(bias)],
                bias = in(ymm_reg) bias,
            ),
            (_, false) => add_blocks!(tile, sums, [pairs!(), tokens!(widen), tokens!(correct)],),
        }
    }
}

/// `Simd::add_row_block`.
///
/// # Safety
/// As `Simd::add_row_block`.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) unsafe fn add_row_block(codes: [__m256i; 8], tile: RegisterTile, sums: *mut f32) {
    let first = _mm256_set1_epi32(BIAS_BITS);
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            row!(0), row!(1), row!(2), row!(3), row!(4), row!(5), row!(6), row!(7),
            "vmovups {c0}, [{factors}]\nvmovups {c1}, [{factors} + 32]\n",
            row!(add 0), row!(add 1), row!(add 2), row!(add 3),
            factors = in(reg) tile.factors, x = in(reg) tile.x, scales = in(reg) tile.scales, sums = in(reg) sums,
            a0 = inout(ymm_reg) first => _, a1 = inout(ymm_reg) first => _,
            a2 = inout(ymm_reg) first => _, a3 = inout(ymm_reg) first => _,
            c0 = inout(ymm_reg) codes[0] => _, c1 = inout(ymm_reg) codes[1] => _,
            c2 = inout(ymm_reg) codes[2] => _, c3 = inout(ymm_reg) codes[3] => _,
            c4 = inout(ymm_reg) codes[4] => _, c5 = inout(ymm_reg) codes[5] => _,
            c6 = inout(ymm_reg) codes[6] => _, c7 = inout(ymm_reg) codes[7] => _,
            x0 = out(ymm_reg) _, magnitudes = out(ymm_reg) _,
            ones = in(ymm_reg) _mm256_set1_epi16(1), offset = in(ymm_reg) _mm256_set1_epi8(-128),
            options(nostack, preserves_flags)
        );
    }
}
