//! AMX, which CPUs have in addition to AVX-512 with VNNI. It has tile registers of up to 16 rows of 64 bytes, and
//! multiplies them as matrices.
//!
//! Stable Rust has no intrinsics and no feature names for AMX, so this file uses inline assembly. The compiler itself
//! never uses tile registers.
use super::avx512::Avx512;
use super::{Kernel, Simd};
use std::arch::asm;
use std::arch::x86_64::{_mm512_set1_epi8, _mm512_sub_epi8};
use std::sync::OnceLock;

/// Number of rows of a tile register, and of 32-bit sums in each row.
pub const ROWS: usize = 16;
/// Size of a row in bytes: 16 sums, or 64 codes of W.
pub const ROW_BYTES: usize = 64;

/// Number of registers for sums. The next register holds rows of x, the last one codes of W.
pub const SUM_REGISTERS: usize = 5;
pub const X: usize = 5;
pub const W: usize = 6;

/// The vector instructions that a CPU with AMX has.
pub type Vectors = Avx512<true>;

/// Token: the CPU has AVX-512 with VNNI and AMX's products of 8-bit integers.
#[derive(Clone, Copy)]
pub struct Amx(Vectors);

impl Amx {
    pub const LANES: usize = Vectors::LANES;
    pub const TILE: usize = Vectors::TILE;
    /// Number of panels in a tile: whole tiles of three panels for AVX-512, and whole pairs of panels that share a
    /// register of x (kernels/amx_gemm.rs).
    pub const PANELS: usize = 6;
    pub const FLOAT_PANELS: usize = Vectors::FLOAT_PANELS;
    /// Number of tokens from which AMX is used. Fewer tokens fill only one tile of x, or are faster with AVX-512.
    pub const WIDE_TOKENS: usize = ROWS + ROWS / 2;
    pub const WIDE_TOKENS_SLOW: usize = Vectors::WIDE_TOKENS_SLOW;
    pub const PAIRS_TOGETHER: bool = Vectors::PAIRS_TOGETHER;
    pub const ROW_PAIRS: bool = Vectors::ROW_PAIRS;

    /// Returns None if the CPU lacks an instruction or the system does not let this process use the tile registers.
    pub fn new() -> Option<Self> {
        static USABLE: OnceLock<bool> = OnceLock::new();
        let vectors = Vectors::new()?;
        USABLE.get_or_init(|| has_instructions() && is_granted()).then_some(Self(vectors))
    }

    pub fn vectors(self) -> Vectors {
        self.0
    }

    /// Runs a kernel with AVX-512. AMX itself only computes products of many rows.
    ///
    /// # Safety
    /// The operands are valid as the kernel requires.
    #[inline(always)]
    pub unsafe fn run<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: the caller guarantees that the operands are valid.
        unsafe { self.0.run(kernel) }
    }

    /// Configures this thread's tile registers for products over `columns` columns, a multiple of 4 and at most 64.
    #[inline(always)]
    pub fn shape(self, columns: usize) {
        let shape = Shape::new(columns);
        // SAFETY: the shape is valid, and nothing else uses the tile registers.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shape, options(readonly, nostack, preserves_flags)) }
    }

    /// Releases the tile registers. Otherwise the system would save their 8 KB at every context switch of this
    /// thread.
    #[inline(always)]
    pub fn release(self) {
        // SAFETY: no other code uses the tile registers.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
    }

    /// Loads register T from memory. Rows are `stride` bytes apart.
    ///
    /// # Safety
    /// The registers are configured; `from` points at T's rows.
    #[inline(always)]
    pub unsafe fn load<const T: usize>(self, from: *const u8, stride: usize) {
        unsafe {
            asm!(
                "tileloadd tmm{t}, [{from} + {stride}]",
                t = const T, from = in(reg) from, stride = in(reg) stride,
                options(readonly, nostack, preserves_flags)
            );
        }
    }

    /// Multiplies register X by register W and puts the sums into register T. X holds rows of signed codes. Each row of
    /// register W holds four columns of 16 rows of the matrix W, signed too. T[i][j] is the dot product of row i of x
    /// and row j of the matrix W.
    ///
    /// # Safety
    /// The registers are configured.
    #[inline(always)]
    pub unsafe fn multiply<const T: usize>(self) {
        unsafe {
            asm!(
                "tilezero tmm{t}",
                "tdpbssd tmm{t}, tmm{x}, tmm{w}",
                t = const T, x = const X, w = const W,
                options(nomem, nostack, preserves_flags)
            );
        }
    }

    /// Subtracts `offset`, at most 128, from each byte of the codes, which makes them signed.
    #[inline(always)]
    pub fn signed(self, codes: <Vectors as Simd>::B, offset: i32) -> <Vectors as Simd>::B {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm512_sub_epi8(codes, _mm512_set1_epi8(offset as i8)) }
    }

    /// Stores the sums in register T.
    ///
    /// # Safety
    /// The registers are configured; `to` has room.
    #[inline(always)]
    pub unsafe fn store<const T: usize>(self, to: *mut [[i32; ROWS]; ROWS]) {
        unsafe {
            asm!(
                "tilestored [{to} + {stride}], tmm{t}",
                t = const T, to = in(reg) to, stride = in(reg) ROW_BYTES,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// The operand of `ldtilecfg`: the number of rows and the bytes per row of each tile register.
#[repr(C, align(64))]
struct Shape {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shape {
    fn new(columns: usize) -> Self {
        let mut shape = Self { palette: 1, start: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        for t in 0..SUM_REGISTERS {
            (shape.rows[t], shape.row_bytes[t]) = (ROWS as u8, ROW_BYTES as u16);
        }
        (shape.rows[W], shape.row_bytes[W]) = ((columns / 4) as u8, ROW_BYTES as u16);
        (shape.rows[X], shape.row_bytes[X]) = (ROWS as u8, columns as u16);
        shape
    }
}

/// Whether the CPU has AMX-TILE and AMX-INT8, as CPUID leaf 7 reports.
fn has_instructions() -> bool {
    const NEEDED: u32 = 1 << 24 | 1 << 25;
    std::arch::x86_64::__cpuid(0).eax >= 7 && std::arch::x86_64::__cpuid_count(7, 0).edx & NEEDED == NEEDED
}

/// Asks Linux for permission to use the tile registers, which it grants per process (Linux documentation, x86/xstate).
/// Linux refuses if it or the hypervisor does not support them.
#[cfg(target_os = "linux")]
fn is_granted() -> bool {
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    // SAFETY: the system call takes two numbers.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// Systems other than Linux: assumes that the tile registers are not available.
#[cfg(not(target_os = "linux"))]
fn is_granted() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiply_sums_all_products() {
        let Some(amx) = Amx::new() else { return };
        for columns in [16, 32, 64] {
            let x: Vec<i8> = (0..ROWS * columns).map(|i| (i * 89 + 7) as i8).collect();
            let w: Vec<i8> = (0..ROWS * columns).map(|i| (i * 151 + 3) as i8).collect();
            let mut sums = [[0; ROWS]; ROWS];
            amx.shape(columns);
            // SAFETY: the registers are configured, and the slices are long enough.
            unsafe {
                amx.load::<X>(x.as_ptr().cast(), columns);
                amx.load::<W>(w.as_ptr().cast(), ROW_BYTES);
                amx.multiply::<0>();
                amx.store::<0>(&mut sums);
            }
            amx.release();
            for (i, row) in sums.iter().enumerate() {
                for (j, &sum) in row.iter().enumerate() {
                    let products = (0..columns)
                        .map(|c| i32::from(x[i * columns + c]) * i32::from(w[c / 4 * ROW_BYTES + 4 * j + c % 4]));
                    assert_eq!(sum, products.sum::<i32>(), "row {i}, {j}, {columns} columns");
                }
            }
        }
    }

    #[test]
    fn signed_subtracts_the_offset() {
        let Some(amx) = Amx::new() else { return };
        let s = amx.vectors();
        for offset in [0, 8, 128] {
            let (codes, mut signed): (Vec<u8>, _) = ((0..64).map(|i| offset as u8 / 2 + i).collect(), [0u8; 64]);
            // SAFETY: both arrays have 64 bytes.
            unsafe { s.b_store(signed.as_mut_ptr(), amx.signed(s.b_load(codes.as_ptr()), offset)) };
            for (code, signed) in codes.into_iter().zip(signed) {
                assert_eq!(i32::from(signed as i8), i32::from(code) - offset);
            }
        }
    }

    /// Whether the system would save the tile registers at a context switch: XINUSE, bits 17 and 18.
    fn in_use() -> bool {
        let low: u32;
        // SAFETY: only reads a register that every CPU with AMX has.
        unsafe { asm!("xgetbv", in("ecx") 1, out("eax") low, out("edx") _, options(nomem, nostack)) };
        low & (0b11 << 17) != 0
    }

    #[test]
    fn release_takes_the_registers_out_of_use() {
        let Some(amx) = Amx::new() else { return };
        assert!(!in_use());
        amx.shape(32);
        assert!(in_use());
        amx.release();
        assert!(!in_use());
    }
}
