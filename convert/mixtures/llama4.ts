import { type Checkpoint, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import { EXPERTS_WITHOUT_NORMS, LLAMA4, TEMPERATURE } from "../../engine/architectures/decoders/llama4.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { convertDecoder } from "../decoder.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";
import { entry } from "../write/metadata.ts";
import { addSharedExperts, addTurnedExperts, expertEntries, readCounts } from "./experts.ts";
import { SIGMOID } from "./sigmoid_experts.ts";

/** Layers per period. The last layer of each period has no rotary positions. */
const PERIOD = 4;
const DENSE = { ffn_gate: "gate_proj", ffn_up: "up_proj", ffn_down: "down_proj" };

/**
 * Converts the text part of Llama 4. Sources: Hugging Face transformers, models/llama4; llama.cpp,
 * conversion/llama4.py.
 */
export function convertLlama4(config: Fields, list: TensorList, prefix: string): ModelParts {
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const experts = readCounts(config, { count: "num_local_experts", feedForward: "intermediate_size" });
  config.mustBe("num_experts_per_tok", 1, "a row has one expert");
  config.mustBe("attn_temperature_tuning", true, "queries grow with their position");
  config.mustBe(
    "use_qk_norm",
    experts.count !== EXPERTS_WITHOUT_NORMS,
    "the number of experts tells GGUF's readers",
  );
  const step = config.count("interleave_moe_layer_step", layers);
  refuseOtherLayers(config, layers, step);
  const checkpoint: Checkpoint = {
    pairsKept: true,
    scalings: ["llama3"],
    ropeBase: 500_000,
    keys: { feedForward: "intermediate_size_mlp" },
  };
  const parts = convertDecoder(config, list, prefix, LLAMA4, checkpoint, {
    feedForward({ block, from }, decoder, layer) {
      const mlp = `${from}feed_forward.`;
      if ((layer + 1) % step !== 0) {
        for (const [name, module] of Object.entries(DENSE)) {
          const shape = [decoder.feedForward, decoder.hidden] as const;
          const [rows, columns] = name === "ffn_down" ? shape.toReversed() : shape;
          list.matrix(block + name, mlp + module, rows, columns);
        }
        return;
      }
      addTurnedExperts(list, decoder, experts, block, mlp, "router");
      addSharedExperts(list, decoder, experts.feedForward, block, `${mlp}shared_expert.`);
    },
  });
  const beta = config.positive("attn_scale", LIMITS.scale, TEMPERATURE.scale);
  const length = config.count("floor_scale", LIMITS.context, TEMPERATURE.length);
  const key = (name: string) => `llama4.${name}`;
  return {
    ...parts,
    entries: [
      ...parts.entries,
      ...expertEntries("llama4", experts),
      entry(key("expert_gating_func"), "UINT32", SIGMOID),
      entry(key("interleave_moe_layer_step"), "UINT32", step),
      entry(key("attention.sliding_window"), "UINT32", config.count("attention_chunk_size", LIMITS.context)),
      ...beta === TEMPERATURE.scale ? [] : [entry(key("attention.temperature_scale"), "FLOAT32", beta)],
      ...length === TEMPERATURE.length ? [] : [entry(key("attention.temperature_length"), "UINT32", length)],
    ],
  };
}

/** Throws if GGUF's keys cannot describe which layers have rotary positions or experts. */
function refuseOtherLayers(config: Fields, layers: number, step: number): void {
  config.mustBe("no_rope_layer_interval", PERIOD, "positions must be missing in every fourth layer");
  const rotated = config.get("no_rope_layers") ?? [];
  const usual = (flag: unknown, layer: number) => flag === Number((layer + 1) % PERIOD !== 0);
  if (!Array.isArray(rotated) || !rotated.every(usual)) {
    config.refuse("no_rope_layers", inWords(rotated), `0 in every fourth layer, 1 in the others`);
  }
  const sparse = config.get("moe_layers");
  if (sparse === undefined || sparse === null) return;
  const wanted = Array.from({ length: layers }, (_, layer) => layer).filter((layer) =>
    (layer + 1) % step === 0
  );
  if (JSON.stringify(sparse) !== JSON.stringify(wanted)) {
    config.refuse("moe_layers", inWords(sparse), `every layer that interleave_moe_layer_step names`);
  }
}
