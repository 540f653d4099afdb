#!/usr/bin/env bash
# Tests the NEON kernels on any Linux machine: builds the crate's tests for aarch64 and runs them under qemu, on a CPU with
# dotprod and i8mm, on one with dotprod alone, and on one with neither. Arguments go to the test binaries, e.g.
# `tools/test-neon.sh gemm`. KERNEL_CASES is the share of the cases in per cent (5 unless set: emulation is slow).
set -euo pipefail
cd "$(dirname "$0")/../rust-kernels"

target=aarch64-unknown-linux-gnu
cpus=(max cortex-a76 cortex-a72)
packages=(qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross rustc-web libstd-rust-web-dev libstd-rust-web-dev:arm64)

# On a machine of that kind the tests run as they are.
if [ "$(uname -m)" = aarch64 ]; then
  exec cargo test --release "$@"
fi

# A rustup toolchain with the target is taken as it is; otherwise Debian's compiler, which has a standard library for it.
if [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
  packages=(qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
else
  export RUSTC=/usr/bin/rustc
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "Cannot test NEON: these Debian packages are missing: ${missing[*]}" >&2
    echo "Install them (libstd-rust-web-dev:arm64 needs: dpkg --add-architecture arm64), or run this as root on Debian." >&2
    exit 1
  fi
  dpkg --add-architecture arm64
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/neon"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"
export KERNEL_CASES="${KERNEL_CASES:-5}"
for cpu in "${cpus[@]}"; do
  echo "== aarch64, qemu -cpu $cpu"
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -cpu $cpu"
  cargo test --release --lib --tests --target "$target" -- "$@"
done
