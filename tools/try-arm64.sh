#!/usr/bin/env bash
# Runs compy as a whole on emulated arm64, on any Linux: the kernels built for it, Deno for it from npm, the demo model; on a CPU with
# dotprod and i8mm, on one with dotprod alone, on one with neither. Wants rustup's target aarch64-unknown-linux-gnu, npm, and Debian's
# qemu-user-static and gcc-aarch64-linux-gnu. DENO_ARM64 is the version of Deno (by default the newest that npm has).
# `tools/test-neon.sh` runs the kernels' own tests.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
work=$PWD/.cache/arm64
mkdir -p "$work/lib"

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-rust-kernels/target/arm64}
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
cargo build --release --locked --lib --target "$target" --manifest-path rust-kernels/Cargo.toml
cp "$CARGO_TARGET_DIR/$target/release/libcompy.so" "$work/lib/"

if [ ! -x "$work/package/deno" ]; then
  npm pack --silent --pack-destination "$work" "@deno/linux-arm64-glibc@${DENO_ARM64:-latest}"
  tar -xzf "$work"/deno-linux-arm64-glibc-*.tgz -C "$work"
fi
# Bundled here: what is emulated need not resolve and transpile.
deno bundle -q --platform deno --outdir "$work/js" main.ts
mkdir -p "$work/models"
cp models/demo.gguf "$work/models/"

for cpu in max cortex-a76 cortex-a72; do
  echo "== arm64, qemu -cpu $cpu"
  COMPY_LIBRARY=$work/lib qemu-aarch64-static -cpu "$cpu" -L /usr/aarch64-linux-gnu "$work/package/deno" run -q --no-prompt \
    --allow-read --allow-env --allow-sys --allow-ffi="$work/lib" "$work/js/main.js" \
    generate --prompt 'Once upon a time' -n 16 --temperature 0 "$@"
done
