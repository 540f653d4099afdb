#!/usr/bin/env bash
# Counts what the NEON kernels execute under qemu for a product of TOKENS rows (64) with weights of SHAPE (1024x1024), for each of
# FORMATS and ISAS, as a table: millions of instructions; of these products of bytes, multiplications of floats, loads and
# stores. Two runs of 1 and 2 calls, subtracted.
set -euo pipefail
cd "$(dirname "$0")/../rust-kernels"
source ../tools/neon-env.sh

cargo build --release --locked --quiet --bin bench --target "$target"
bench="$CARGO_TARGET_DIR/$target/release/bench"
listing=$(mktemp)
trap 'rm -f "$listing"' EXIT
aarch64-linux-gnu-objdump -d --no-show-raw-insn "$bench" | awk '$1 ~ /^[0-9a-f]+:$/ { print substr($1, 1, length($1) - 1), $2 }' \
  >"$listing"

# Functions that are compiled for a set: only these are counted, not the packing of weights before them.
kernels=$(aarch64-linux-gnu-nm -S "$bench" | awk '/4simd3isa.*7enabled/ { printf "%s0x%s+0x%s", comma, $1, $2; comma = "," }')

# All, products of bytes, multiplications of floats, loads and stores of so many calls. Each executed instruction is a line of
# qemu's log, with its address.
executed() {
  qemu-aarch64-static -cpu max -singlestep -d exec,nochain -dfilter "$kernels" "$bench" calls --isa "$1" --format "$2" --m "${TOKENS:-64}" \
    --shape "${SHAPE:-1024x1024}" --how kernel --calls "$3" 2>&1 >/dev/null |
    awk -F/ '
      FILENAME != "-" { split($0, line, " "); name[line[1]] = line[2]; next }
      /^Trace/ { count[$2]++ }
      END {
        for (at in count) {
          short = at
          sub(/^0+/, "", short)
          all += count[at]
          if (name[short] ~ /^(sdot|usdot|usmmla)$/) bytes += count[at]
          if (name[short] ~ /^(fmul|fmla|fmls)$/) floats += count[at]
          if (name[short] ~ /^(ld|st)/) memory += count[at]
        }
        print all + 0, bytes + 0, floats + 0, memory + 0
      }' "$listing" -
}

echo "| format | set | instructions | products of bytes | of floats | loads and stores |"
echo "| --- | --- | --- | --- | --- | --- |"
for format in ${FORMATS:-Q8_0 Q4_0 Q4_K}; do
  for isa in ${ISAS:-neon-dotprod neon-i8mm}; do
    paste -d' ' <(executed "$isa" "$format" 1) <(executed "$isa" "$format" 2) | awk -v name="| $format | $isa" '
      { printf "%s | %.2f | %.2f | %.2f | %.2f |\n", name, ($5 - $1) / 1e6, ($6 - $2) / 1e6, ($7 - $3) / 1e6, ($8 - $4) / 1e6 }'
  done
done
