import { ArchitectureKeys } from "./architecture_keys.ts";
import type { Hparams } from "./hparams.ts";
import type { GgufFile } from "../types.ts";

/** Hyper-parameters of a mixture of experts, beyond the dense decoders'. */
export interface ExpertHparams {
  readonly count: number;
  /** Experts that each row chooses. */
  readonly used: number;
  /** Hidden width of each expert. */
  readonly feedForwardLength: number;
}

/** About four times the largest published models. */
const MAX = { count: 4096, used: 256, feedForwardLength: 131_072 };

/** How an expert's score is computed from its logit. */
export type Gating = "softmax" | "softmax over all" | "sigmoid" | "sigmoid by default";

/**
 * Values of `expert_gating_func`. The softmax over the chosen experts (3) equals the softmax over all,
 * divided by the sum of the chosen.
 */
const GATING: Readonly<Record<Gating, readonly number[]>> = {
  softmax: [0, 1, 3],
  "softmax over all": [0, 1],
  sigmoid: [2],
  "sigmoid by default": [0, 2],
};
/**
 * Keys that change how experts are chosen and weighed, with the values that change nothing. A missing key
 * means 0.
 */
const PLAIN = {
  expert_group_count: [0, 1],
  expert_shared_count: [0],
  expert_weights_scale: [0, 1],
} as const;

/**
 * Reads and checks `{architecture}.expert_*` for this kind of gating, with llama.cpp's defaults. The
 * architecture itself handles the keys in `known`. Throws GgufError(GGUF_HPARAM) naming the key.
 */
export function readExpertHparams(
  file: GgufFile,
  h: Hparams,
  gating: Gating = "softmax",
  known: readonly (keyof typeof PLAIN)[] = [],
): ExpertHparams {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const count = keys.count("expert_count", MAX.count);
  const used = keys.count("expert_used_count", Math.min(count, MAX.used));
  const shared = Math.floor(h.feedForwardLength / used) || undefined;
  const feedForwardLength = keys.count("expert_feed_forward_length", MAX.feedForwardLength, shared);
  const checked: Record<string, readonly number[]> = { expert_gating_func: GATING[gating], ...PLAIN };
  for (const name of known) delete checked[name];
  for (const [name, values] of Object.entries(checked)) {
    const found = file.metadata.getNumber(keys.name(name), values.includes(0) ? 0 : undefined);
    if (!values.includes(found)) {
      keys.refuse(name, String(found), `${values.join(" or ")} in this architecture`);
    }
  }
  return { count, used, feedForwardLength };
}

/** Returns the shared expert's width; by default that of a dense feed-forward block, as in llama.cpp. */
export function readSharedWidth(file: GgufFile, h: Hparams): number {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const dense = h.feedForwardLength || undefined;
  return keys.count("expert_shared_feed_forward_length", MAX.feedForwardLength, dense);
}
