import { createHash } from "node:crypto";
import { smallModel } from "../engine/gguf/testing.ts";

/** Returns a loadable model of about `bytes` bytes, with seeded weights. */
export function testModel(seed: number, bytes: number): Uint8Array<ArrayBuffer> {
  const width = Math.max(1, Math.round(bytes / (3 * 32 * 4)));
  const matrix = (shape: number[]) => {
    const words = new Uint32Array(shape[0] * shape[1]);
    let state = (seed * 2654435761 + shape[0]) >>> 0 || 1;
    for (let i = 0; i < words.length; i++) {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      words[i] = (state & 0x007fffff) | 0x3c000000; // a float between 2^-7 and 2^-6
    }
    return words;
  };
  const builder = smallModel().set("llama.feed_forward_length", "UINT32", width)
    .set("llama.attention.head_count", "UINT32", 2)
    .set("llama.attention.head_count_kv", "UINT32", 1);
  for (const key of ["attention.key_length", "attention.value_length", "rope.dimension_count"]) {
    builder.set(`llama.${key}`, "UINT32", 16);
  }
  for (const [name, shape] of Object.entries({ gate: [32, width], up: [32, width], down: [width, 32] })) {
    builder.tensor(`blk.0.ffn_${name}.weight`, "F32", shape, matrix(shape));
  }
  return builder.build().bytes;
}

export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
