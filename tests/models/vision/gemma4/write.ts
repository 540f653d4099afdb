/** Writes seeded towers of Gemma 4. */
import type { TowerFamily, TowerWriter } from "../tower_writer.ts";

/** Number of rows of each position table of Gemma 4. */
export const POSITIONS = 720;

/** Writes a tower's tensors, either with bounds for products or with biases and scales that standardize pooled rows. */
export function writeGemma4(w: TowerWriter, family: TowerFamily, projection: number, clamped: boolean): void {
  const { width, heads, feedForward, layers } = family;
  w.patches(family);
  w.file.floats("v.position_embd.weight", [width, POSITIONS, 2], (random) => random.normal());
  const bounds = { input_min: -1, input_max: 0.8, output_min: -0.2, output_max: 0.3 };
  const bound = (name: string, factor = 1) => {
    for (const [key, value] of Object.entries(clamped ? bounds : {})) {
      w.file.floats(`${name}.${key}`, [1], () => factor * value);
    }
  };
  for (let layer = 0; layer < layers; layer++) {
    const name = (tensor: string) => `v.blk.${layer}.${tensor}`;
    for (const norm of ["ln1", "ln2", "attn_post_norm", "ffn_post_norm"]) {
      w.file.vector(`${name(norm)}.weight`, width);
    }
    for (const part of ["attn_q", "attn_k", "attn_v", "attn_out"]) {
      w.file.matrix(name(part), width, width);
      bound(name(part));
    }
    // Attention does not scale queries, so small norm weights keep the scores small.
    for (const norm of ["attn_q_norm", "attn_k_norm"]) {
      w.file.vector(`${name(norm)}.weight`, width / heads, 0.3, 0.03);
    }
    for (const part of ["ffn_gate", "ffn_up"]) {
      w.file.matrix(name(part), width, feedForward);
      bound(name(part));
    }
    w.file.matrix(name("ffn_down"), feedForward, width);
    bound(name("ffn_down"), 0.02);
  }
  w.file.matrix("mm.input_projection", width, projection);
  if (clamped) return;
  w.file.vector("v.std_bias", width, 1, 1);
  w.file.vector("v.std_scale", width, 2, 1);
}
