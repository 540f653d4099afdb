//! Measures elapsed time. WebAssembly has no clock, so there the host provides one.
#[cfg(not(target_arch = "wasm32"))]
pub use std::time::Instant;

#[cfg(target_arch = "wasm32")]
mod host {
    use std::time::Duration;

    #[link(wasm_import_module = "host")]
    unsafe extern "C" {
        /// Returns milliseconds since an arbitrary but fixed moment.
        #[link_name = "now"]
        fn host_now() -> f64;
    }

    /// Stands for `std::time::Instant`, in the host's milliseconds.
    #[derive(Clone, Copy)]
    pub struct Instant(f64);

    impl Instant {
        pub fn now() -> Self {
            // SAFETY: the host's function takes no arguments and has no requirements.
            Self(unsafe { host_now() })
        }

        pub fn elapsed(&self) -> Duration {
            Duration::from_secs_f64((Self::now().0 - self.0).max(0.0) / 1e3)
        }
    }
}
#[cfg(target_arch = "wasm32")]
pub use self::host::Instant;
