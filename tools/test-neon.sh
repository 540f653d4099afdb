#!/usr/bin/env bash
# Tests the NEON kernels on any Linux machine: builds the crate's tests for aarch64 and runs them under qemu, on a CPU with
# dotprod and i8mm, on one with dotprod alone, and on one with neither. Arguments go to the test binaries, e.g.
# `tools/test-neon.sh gemm`. KERNEL_CASES is the share of the cases in per cent (5 unless set: emulation is slow).
set -euo pipefail
cd "$(dirname "$0")/../rust-kernels"

cpus=(max cortex-a76 cortex-a72)

# On a machine of that kind the tests run as they are.
if [ "$(uname -m)" = aarch64 ]; then
  exec cargo test --release "$@"
fi

source ../tools/neon-env.sh
export KERNEL_CASES="${KERNEL_CASES:-5}"
for cpu in "${cpus[@]}"; do
  echo "== aarch64, qemu -cpu $cpu"
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -cpu $cpu"
  # Changed plans ask for terabytes of address space, which qemu keeps books of, page by page.
  cargo test --release --lib --tests --target "$target" -- "$@" --skip mutations
done
