import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { chosenWeights } from "../../plan/ops/columns.ts";
import { gate } from "../../plan/ops/gate.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { route } from "../../plan/ops/route.ts";
import type { TensorName } from "../architecture.ts";
import { decoderKeys, type Family } from "../family.ts";
import { experts as expertsOf } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";
import { feedForward, type SharedExperts } from "../parts/shared_experts.ts";
import type { LayerAttention } from "../parts/windows.ts";

/** Values that the checkpoints share and files do not state: the chunk's tokens, and the queries' temperature. */
const CHUNK = 8192;
export const TEMPERATURE = { scale: 0.1, length: 8192 };
/** Layers per period. The last layer of a period attends to all tokens and has no positions. */
const PERIOD = 4;
/** The number of experts of Maverick, whose heads have no norms. No key says so. */
export const EXPERTS_WITHOUT_NORMS = 128;

/**
 * Llama 4 Scout and Maverick. Layers with positions attend within chunks, and their heads are normed without weights.
 * In layers without positions, queries grow with their position. One expert per row reads the row times a sigmoid of
 * its score. Sources: Hugging Face transformers, models/llama4; llama.cpp, src/models/llama4.cpp.
 */
export const LLAMA4: Family = {
  architecture: "llama4",
  traits: { interleavedRope: true },
  allows: { experts: true },
  read(b, h, rope) {
    const keys = decoderKeys(b);
    const step = keys.count("interleave_moe_layer_step", h.blockCount);
    const chosen = readExpertHparams(b.file, h, "sigmoid by default");
    if (chosen.used !== 1) keys.refuse("expert_used_count", String(chosen.used), "1 in this architecture");
    const experts = { ...chosen, shared: chosen.feedForwardLength };
    return {
      perLayer: layersOf(b, h, rope, keys, experts),
      feedForward(x, addTo, name, layer) {
        if ((layer + 1) % step !== 0) return feedForward(b, x, h.feedForwardLength, name, { addTo });
        addMixture(b, x, addTo, experts, name);
      },
    };
  },
};

function layersOf(
  b: PlanBuilder,
  h: Hparams,
  rope: Rope,
  keys: ArchitectureKeys,
  { count }: SharedExperts,
): LayerAttention[] {
  const key = "attention.sliding_window";
  if (keys.has(key) && keys.window() === 0) keys.refuse(key, "0", "at least 1 in this architecture");
  const table = ropeTable(b, rope.angles());
  const temperature = {
    beta: keys.scale("attention.temperature_scale", TEMPERATURE.scale),
    period: keys.count(
      "attention.temperature_length",
      Math.max(h.contextLength, TEMPERATURE.length),
      TEMPERATURE.length,
    ),
    offset: 1,
  };
  const unweightedNorms = count !== EXPERTS_WITHOUT_NORMS;
  const near = { table, window: keys.window() || CHUNK, chunked: true, unweightedNorms };
  return keys.windowLayers(h.blockCount, { period: PERIOD }).map((slides) => slides ? near : { temperature });
}

/** Adds the output of each row's expert, which reads the row times its weight, and of the shared expert. */
function addMixture(b: PlanBuilder, x: Value, addTo: Value, experts: SharedExperts, name: TensorName): void {
  const [logits] = linear(b, x, [{ name: name("ffn_gate_inp"), rows: experts.count, fine: experts.count }]);
  const weight = chosenWeights(b, route(b, logits, { used: 1, sigmoid: true, divided: false }));
  // The softmax of one chosen expert, divided by itself, is 1.
  const chosen = route(b, logits, { used: 1 });
  expertsOf(b, gate(b, weight, x), addTo, chosen, experts, name);
  feedForward(b, x, experts.shared, (tensor) => name(`${tensor}_shexp`), { addTo });
}
