#!/usr/bin/env bash
# Counts the instructions of the NEON kernels under qemu: for each format, instruction set and number of tokens, those of
# a block (32 columns of one row for one token), as a table. Two runs of 1 and 3 calls, subtracted, on 16 x 1024 weights.
# FORMATS, ISAS and TOKENS choose others than all.
set -euo pipefail
cd "$(dirname "$0")/../rust-kernels"
source ../tools/neon-env.sh

formats=${FORMATS:-Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 F16 BF16 F32}
isas=${ISAS:-neon neon-dotprod neon-i8mm}
tokens=${TOKENS:-1 8}

cargo build --release --locked --quiet --bin bench --target "$target"
bench="$CARGO_TARGET_DIR/$target/release/bench"

# Each executed instruction is a line of qemu's log.
executed() {
  qemu-aarch64-static -cpu max -singlestep -d exec,nochain "$bench" calls --isa "$1" --format "$2" --m "$3" \
    --shape 16x1024 --how kernel --calls "$4" 2>&1 >/dev/null | grep -c ^Trace
}

echo "| format | $(for isa in $isas; do for m in $tokens; do printf '%s, m = %s | ' "$isa" "$m"; done; done)"
for format in $formats; do
  printf '| %s |' "$format"
  for isa in $isas; do
    for m in $tokens; do
      one=$(executed "$isa" "$format" "$m" 1)
      three=$(executed "$isa" "$format" "$m" 3)
      awk -v d=$((three - one)) -v m="$m" 'BEGIN { printf " %.1f |", d / 2 / (16 * 32 * m) }'
    done
  done
  echo
done
