//! Macros that generate the short methods of `Simd` from lists.

/// Defines inlined methods that are one expression of intrinsics, in lines such as
/// `fn add(self, a: F, b: F) -> F = _mm256_add_ps(a, b);`.
macro_rules! wrappers {
    ($($(#[$attribute:meta])* $($head:ident)+ ($self:ident $(, $arg:ident: $type:ty)*) $(-> $result:ty)? = $body:expr;)*) => {
        $($(#[$attribute])*
        #[inline(always)]
        #[allow(unused_unsafe)] // WebAssembly's intrinsics are safe unless they follow a pointer
        $($head)+ ($self $(, $arg: $type)*) $(-> $result)? {
            // SAFETY: a token exists only if the CPU has the instructions. The caller of an unsafe method promises
            // that each pointer leads to memory that the method may load or store.
            unsafe { $body }
        })*
    };
}

/// Defines the items of `Simd` for vectors that take one register. Both halves are then the whole vector.
macro_rules! one_register {
    () => {
        type Low = Self;
        type High = Self;
        const HALVES: bool = false;
        #[inline(always)]
        fn halves(self) -> (Self, Self) {
            (self, self)
        }
    };
}
