/// Calls a macro with all tokens, best first: each instruction set's name, and the CPU features that it needs. The
/// build script includes this file too and chooses from it.
macro_rules! for_each_token {
    ($then:ident) => {
        $then! {
            #[cfg(target_arch = "x86_64")]
            "avx512-vnni", Avx512<true>,
            needs ["avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx2", "fma", "f16c"];
            #[cfg(all(target_arch = "x86_64", not(vnni_evex)))]
            "avx2-vnni", Avx2<true>, needs ["avx2", "fma", "f16c", "avxvnni"];
            #[cfg(all(target_arch = "x86_64", vnni_evex))]
            "avx2-vnni", Avx2<true>, needs ["avx2", "fma", "f16c", "avx512vl", "avx512vnni"];
            #[cfg(target_arch = "x86_64")]
            "avx512", Avx512<false>, needs ["avx512f", "avx512bw", "avx512vl", "avx512dq", "avx2", "fma", "f16c"];
            #[cfg(target_arch = "x86_64")]
            "avx2", Avx2<false>, needs ["avx2", "fma", "f16c"];
            #[cfg(target_arch = "aarch64")]
            "neon-i8mm", Neon<{ MATRIX }>, needs ["neon", "dotprod", "i8mm"];
            #[cfg(target_arch = "aarch64")]
            "neon-dotprod", Neon<{ SDOT }>, needs ["neon", "dotprod"];
            #[cfg(target_arch = "aarch64")]
            "neon", Neon<{ WIDENING }>, needs ["neon"];
            #[cfg(target_arch = "wasm32")]
            "wasm-simd128", Wasm, needs ["simd128", "relaxed-simd"];
            #[cfg(not(target_arch = "wasm32"))]
            "scalar", Scalar, needs [];
        }
    };
}
