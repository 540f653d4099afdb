//! With the feature `this-cpu`, the library has code for one instruction set beside scalar code. This script chooses
//! that set: COMPY_BUILD_ISA, or the best set that this machine's CPU has.
include!("src/simd/tokens.rs");

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected as has;
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected as has;

macro_rules! tokens {
    ($($(#[$cfg:meta])* $name:literal, $token:ty, needs [$($feature:tt),*];)*) => {
        /// Returns the instruction sets of this architecture, best first, and whether this CPU has each of them.
        fn sets() -> Vec<(&'static str, bool)> {
            vec![$($(#[$cfg])* ($name, true $(&& has!($feature))*),)*]
        }
    };
}
for_each_token!(tokens);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/simd/tokens.rs");
    println!("cargo::rerun-if-env-changed=COMPY_BUILD_ISA");
    println!("cargo::rustc-check-cfg=cfg(isa, values(any()))");
    if std::env::var_os("CARGO_FEATURE_THIS_CPU").is_none() {
        return;
    }
    let target = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap();
    assert_eq!(target, std::env::consts::ARCH, "the feature this-cpu builds for this machine only");
    let wanted = std::env::var("COMPY_BUILD_ISA").ok();
    let chosen = sets().into_iter().find(|(name, has)| wanted.as_ref().map_or(*has, |wanted| wanted == name));
    let (chosen, _) = chosen.expect("COMPY_BUILD_ISA must be an instruction set of this architecture");
    for isa in [chosen, "scalar"] {
        println!("cargo::rustc-cfg=isa=\"{isa}\"");
    }
}
