import { ArchitectureKeys } from "./architecture_keys.ts";
import type { Hparams } from "./hparams.ts";
import type { GgufFile } from "./types.ts";

/** What a mixture of experts has beside the dense decoders' hyper-parameters. */
export interface ExpertHparams {
  readonly count: number;
  /** Experts that each row chooses. */
  readonly used: number;
  /** Of each expert. */
  readonly feedForwardLength: number;
}

/** Some four times the largest published models. */
const MAX = { count: 4096, used: 256, feedForwardLength: 131_072 };

/** What an expert's score is made from its logit by. */
export type Gating = "softmax" | "softmax over all" | "sigmoid" | "sigmoid by default";

/**
 * Its values in `expert_gating_func`. The softmax over the chosen (3) is that over all, divided by the sum of the chosen.
 */
const GATING: Readonly<Record<Gating, readonly number[]>> = {
  softmax: [0, 1, 3],
  "softmax over all": [0, 1],
  sigmoid: [2],
  "sigmoid by default": [0, 2],
};
/** Other keys that change how experts are chosen and weighed, and their values that leave it at the scores. Without a key it is 0. */
const PLAIN = {
  expert_group_count: [0, 1],
  expert_shared_count: [0],
  expert_weights_scale: [0, 1],
} as const;

/**
 * Reads and checks the keys `{architecture}.expert_*` of a model whose experts' scores are made that way. What `known` names is the
 * architecture's own affair. Throws GgufError(GGUF_HPARAM) naming the key. Defaults are llama.cpp's.
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

/** The width of the expert that all rows go through; by default that of a dense feed-forward half, as in llama.cpp. */
export function readSharedWidth(file: GgufFile, h: Hparams): number {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const dense = h.feedForwardLength || undefined;
  return keys.count("expert_shared_feed_forward_length", MAX.feedForwardLength, dense);
}
