/** Quantizers for TQ1_0 and TQ2_0: value = d * code, with codes -1, 0 and 1. */
import { COLUMNS, takeBlock, w, x } from "./blocks_of_256.ts";
import { putHalf, type Quantizer } from "./quantizers.ts";

/** The codes of the block, plus 1. */
const codes = new Uint8Array(COLUMNS);

/**
 * Returns the scale with the smallest weighted squared error. The n largest magnitudes get the codes -1 and 1, the other
 * values get 0. The search tries every n.
 */
function fit(): number {
  const order = new Uint8Array(COLUMNS).map((_, i) => i).sort((a, b) => Math.abs(x[b]) - Math.abs(x[a]));
  let [most, found, sum, weights] = [0, 0, 0, 0];
  for (const i of order) {
    sum += w[i] * Math.abs(x[i]);
    weights += w[i];
    if (sum * sum / weights > most) [most, found] = [sum * sum / weights, sum / weights];
  }
  return found;
}

function quantizerOf(
  type: "TQ1_0" | "TQ2_0",
  bytes: number,
  at: number,
  write: (out: Uint8Array, to: number) => void,
): Quantizer {
  return {
    type,
    columns: COLUMNS,
    bytes,
    weighs: true,
    block(values, from, out, to, restored, weights) {
      if (!takeBlock(values, from, COLUMNS, weights)) return false;
      const d = putHalf(fit(), out, to + at);
      const inverse = d > 0 ? 1 / d : 0;
      for (let i = 0; i < COLUMNS; i++) {
        const code = Math.max(-1, Math.min(1, Math.round(x[i] * inverse)));
        codes[i] = code + 1;
        restored[i] = d * code;
      }
      write(out, to);
      return d < Infinity;
    },
  };
}

export const tq2_0: Quantizer = quantizerOf("TQ2_0", 66, 64, (out, to) => {
  out.fill(0, to, to + 64);
  for (let k = 0; k < COLUMNS; k++) out[to + (k >> 7) * 32 + k % 32] |= codes[k] << 2 * (k >> 5 & 3);
});

/** Bytes, and values per byte, in each of the three parts of a TQ1_0 block. */
const PARTS = [[32, 5], [16, 5], [4, 4]] as const;

/** A byte stands for the fraction byte / 256, whose base-3 digits are the codes plus 1. */
export const tq1_0: Quantizer = quantizerOf("TQ1_0", 54, 52, (out, to) => {
  let first = 0;
  for (const [bytes, digits] of PARTS) {
    for (let i = 0; i < bytes; i++) {
      let number = 0;
      for (let n = 0; n < 5; n++) number = 3 * number + (n < digits ? codes[first + n * bytes + i] : 0);
      out[to++] = Math.ceil(number * 256 / 243);
    }
    first += bytes * digits;
  }
});
