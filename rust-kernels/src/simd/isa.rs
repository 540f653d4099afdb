//! The instruction sets, and the only code that compiles kernels for each of them.
//!
//! An instruction set is a token. `new` creates it only if the CPU has the instructions, so the holder of a token may
//! use them. `Isa::run` calls a kernel, written over any `Simd`, inside a function compiled for the token's features.
//! Everything that the kernel calls is inlined there. AMX has no vectors of its own: it is AVX-512 with VNNI, and
//! products of many rows take another path (kernels/amx_gemm.rs).
#[cfg(target_arch = "aarch64")]
use super::neon::{MATRIX, Neon, SDOT, WIDENING};
#[cfg(not(target_arch = "wasm32"))]
use super::scalar::Scalar;
#[cfg(target_arch = "wasm32")]
use super::wasm::Wasm;
use super::{Kernel, Simd};
#[cfg(target_arch = "x86_64")]
use super::{amx::Amx, avx2::Avx2, avx512::Avx512};
use crate::error::{Error, Result};

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected as has;
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected as has;

/// For WebAssembly, every feature counts as present: a host refuses to load a module with instructions that it does not
/// have.
#[cfg(target_arch = "wasm32")]
macro_rules! has {
    ($feature:tt) => {
        true
    };
}

macro_rules! tokens {
    ($($(#[$cfg:meta])* $name:literal, $token:ty, needs [$($feature:tt),*];)*) => {
        $($(#[$cfg])*
        impl $token {
            /// Whether the library contains code for this instruction set. With the feature `this-cpu` it only contains
            /// code for the set that build.rs chose, and scalar code.
            const COMPILED: bool = cfg!(any(not(feature = "this-cpu"), isa = $name));

            /// Returns None if the CPU lacks an instruction or the library lacks the set's code.
            pub fn new() -> Option<Self> {
                let has_all = Self::COMPILED $(&& has!($feature))*;
                has_all.then_some(Self(Default::default()))
            }

            /// Runs a kernel with the set's instructions.
            ///
            /// # Safety
            /// The operands are valid as the kernel requires.
            #[inline(always)]
            pub unsafe fn run<K: Kernel>(self, kernel: K) -> K::Output {
                // A literal instead of `COMPILED`, because only a literal keeps the compiler from compiling the kernel.
                if cfg!(not(any(not(feature = "this-cpu"), isa = $name))) {
                    // SAFETY: `new` never creates a token of a set that is not compiled.
                    unsafe { std::hint::unreachable_unchecked() }
                }
                $(#[target_feature(enable = $feature)])*
                unsafe fn enabled<K: Kernel>(token: $token, kernel: K) -> K::Output {
                    // SAFETY: the token proves that the CPU has the features. The caller guarantees that the operands
                    // are valid.
                    unsafe { kernel.run(token) }
                }
                // SAFETY: the token exists, so the CPU has the features.
                unsafe { enabled(self, kernel) }
            }
        })*
    };
}

macro_rules! instruction_sets {
    ($($(#[$cfg:meta])* $variant:ident($token:ty), $name:literal;)*) => {
        /// An instruction set that this CPU has.
        #[derive(Clone, Copy)]
        pub enum Isa {
            $($(#[$cfg])* #[doc = $name] $variant($token),)*
        }

        impl Isa {
            /// Returns all sets that this CPU has, best first.
            pub fn available() -> Vec<Self> {
                let mut found = Vec::new();
                $($(#[$cfg])* found.extend(<$token>::new().map(Self::$variant));)*
                found
            }

            pub fn name(self) -> &'static str {
                match self {
                    $($(#[$cfg])* Self::$variant(_) => $name,)*
                }
            }

            /// Number of rows in a weight panel: one per lane of a vector.
            pub fn lanes(self) -> usize {
                match self {
                    $($(#[$cfg])* Self::$variant(_) => <$token>::LANES,)*
                }
            }

            /// Number of tokens in the widest tile of quantized rows.
            pub fn tile(self) -> usize {
                match self {
                    $($(#[$cfg])* Self::$variant(_) => <$token>::TILE,)*
                }
            }

            /// Whether both 16-bit codes of a lane are adjacent in memory.
            pub fn pairs_together(self) -> bool {
                match self {
                    $($(#[$cfg])* Self::$variant(_) => <$token>::PAIRS_TOGETHER,)*
                }
            }

            /// Whether the set multiplies rows of x in pairs, as `RowPairs` describes.
            pub fn row_pairs(self) -> bool {
                match self {
                    $($(#[$cfg])* Self::$variant(_) => <$token>::ROW_PAIRS,)*
                }
            }

            /// Number of panels in a register tile of an integer kernel for many tokens.
            pub fn panels(self) -> usize {
                match self {
                    $($(#[$cfg])* Self::$variant(_) => <$token>::PANELS,)*
                }
            }

            /// Number of panels in a register tile of a float kernel.
            pub fn float_panels(self) -> usize {
                match self {
                    $($(#[$cfg])* Self::$variant(_) => <$token>::FLOAT_PANELS,)*
                }
            }

            /// Number of tokens from which integer kernels decode panels into memory. It differs for formats whose
            /// codes are slow to decode.
            pub fn wide_tokens(self, slow_codes: bool) -> usize {
                match self {
                    $($(#[$cfg])* Self::$variant(_) if slow_codes => <$token>::WIDE_TOKENS_SLOW,)*
                    $($(#[$cfg])* Self::$variant(_) => <$token>::WIDE_TOKENS,)*
                }
            }

            /// Runs a kernel with the set's instructions.
            ///
            /// # Safety
            /// The operands are valid as the kernel requires.
            // Inlined, because small kernels run for each row and head. There a second call would cost some per cent.
            #[inline(always)]
            pub unsafe fn run<K: Kernel>(self, kernel: K) -> K::Output {
                match self {
                    // SAFETY: the caller guarantees that the operands are valid.
                    $($(#[$cfg])* Self::$variant(token) => unsafe { token.run(kernel) },)*
                }
            }
        }
    };
}

for_each_token!(tokens);

// All instruction sets, best first.
instruction_sets! {
    #[cfg(target_arch = "x86_64")]
    Avx512Amx(Amx), "avx512-amx";
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Avx512<true>), "avx512-vnni";
    #[cfg(target_arch = "x86_64")]
    Avx2Vnni(Avx2<true>), "avx2-vnni";
    #[cfg(target_arch = "x86_64")]
    Avx512Plain(Avx512<false>), "avx512";
    #[cfg(target_arch = "x86_64")]
    Avx2Plain(Avx2<false>), "avx2";
    #[cfg(target_arch = "aarch64")]
    NeonI8mm(Neon<{ MATRIX }>), "neon-i8mm";
    #[cfg(target_arch = "aarch64")]
    NeonDotprod(Neon<{ SDOT }>), "neon-dotprod";
    #[cfg(target_arch = "aarch64")]
    NeonPlain(Neon<{ WIDENING }>), "neon";
    #[cfg(target_arch = "wasm32")]
    Wasm(Wasm), "wasm-simd128";
    // The WebAssembly module has no scalar set, because it must be small.
    #[cfg(not(target_arch = "wasm32"))]
    Plain(Scalar), "scalar";
}

impl Isa {
    /// Returns the set named `wanted`, or the best set of this CPU if `wanted` is empty.
    ///
    /// # Errors
    /// The name is unknown, or the CPU lacks the set.
    pub fn detect(wanted: &str) -> Result<Self> {
        let sets = Self::available();
        if wanted.is_empty() {
            return Ok(sets[0]);
        }
        sets.iter().find(|isa| isa.name() == wanted).copied().ok_or_else(|| {
            let names: Vec<_> = sets.iter().map(|isa| isa.name()).collect();
            Error::new(format!("Instruction set must be one that this CPU has: {} (got {wanted:?})", names.join(", ")))
        })
    }
}
