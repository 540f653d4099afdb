/** Converts checkpoints of decoders that a family's description covers. */
import {
  type Checkpoint,
  type DecoderConfig,
  type LayerWidths,
  type RopeConfig,
} from "../engine/architectures/checkpoint.ts";
import type { Family } from "../engine/architectures/family.ts";
import {
  feedForwardTensors,
  type LayerSizes,
  type LayerTensor,
  layerTensors,
  type OwnTensors,
  type Traits,
} from "../engine/architectures/traits.ts";
import type { Fields } from "./checkpoint/json.ts";
import { decoderEntries, llama3Factors, readDecoderConfig } from "./decoder_config.ts";
import { addJoined, addJoinedBiases, addTransposed } from "./made_of_modules.ts";
import type { ModelParts } from "./model_parts.ts";
import { interleavedPairs, type Runs } from "./order.ts";
import type { TensorList } from "./tensor_list.ts";
import { entry } from "./write/metadata.ts";

type Modules = Readonly<Record<string, string>>;

/** Module names by GGUF tensor name, for Llama and most families. */
const MODULES: Modules = {
  token_embd: "embed_tokens",
  layers: "layers",
  output_norm: "norm",
  attn_norm: "input_layernorm",
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_qkv: "self_attn.qkv_proj",
  attn_output: "self_attn.o_proj",
  attn_q_norm: "self_attn.q_norm",
  attn_k_norm: "self_attn.k_norm",
  attn_sinks: "self_attn.sinks",
  attn_gate: "self_attn.gate_proj",
  ffn_norm: "post_attention_layernorm",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
  post_attention_norm: "post_attention_layernorm",
  post_ffw_norm: "post_feedforward_layernorm",
};
const FUSED_GATE = { ffn_up: "mlp.gate_up_proj" };
/** Module name of the output matrix of a layer whose attention block is one linear layer. */
const LINEAR_ATTENTION = { attn_output: "self_attn.linear_attn" };

const ACTIVATIONS = { silu: "silu", gelu: "gelu_pytorch_tanh", squared_relu: "relu2" };

/** Prefixes of a layer's GGUF names and of its module names. */
export interface LayerNames {
  readonly block: string;
  readonly from: string;
}

/** Adds a layer's block to the list, instead of the tensors that the traits name. */
export interface OwnBlocks {
  readonly attention?: (names: LayerNames, decoder: DecoderConfig, layer: number) => void;
  readonly feedForward?: (names: LayerNames, decoder: DecoderConfig, layer: number) => void;
}

/** Converts a checkpoint of the family. `prefix` precedes its modules. */
export function convertDecoder(
  given: Fields,
  list: TensorList,
  prefix: string,
  family: Family,
  checkpoint: Checkpoint = {},
  own: OwnBlocks = {},
): ModelParts {
  if (!checkpoint.pairsKept) {
    given.mustBe("rope_traditional", false, "rows are reordered for the usual rotation");
  }
  const config = checkpoint.prepare?.(given) ?? given;
  for (const [key, allowed, why] of checkpoint.mustBe ?? []) config.mustBe(key, allowed, why);
  const traits = { ...family.traits, ...checkpoint.traits?.(config) };
  const decoder = readDecoderConfig(config, {
    ...checkpoint,
    scalings: checkpoint.scalings ?? ["linear", "yarn"],
    activation: checkpoint.activation ?? ACTIVATIONS[traits.activation ?? "silu"],
    biases: traits.biases?.includes("attn_q"),
  });
  const architecture = checkpoint.architecture?.(config) ?? family.architecture;
  const modules = modulesOf(traits, checkpoint);
  const top = checkpoint.prefix ?? prefix;
  list.matrix("token_embd", top + modules.token_embd, decoder.vocabulary, decoder.hidden);
  if (traits.learnedPositions) {
    list.floats(
      "position_embd.weight",
      `${top}${modules.position_embd}.weight`,
      decoder.context,
      decoder.hidden,
    );
  }
  addRopeFactors(list, decoder.rope);
  const widths = checkpoint.widths?.(config, decoder);
  for (let layer = 0; layer < decoder.layers; layer++) {
    const names = { block: `blk.${layer}.`, from: `${top}${modules.layers}.${layer}.` };
    const constants = checkpoint.constants?.(config);
    addLayer(list, { ...decoder, ...widths?.[layer], constants }, traits, checkpoint, names, {
      attention: own.attention && (() => own.attention!(names, decoder, layer)),
      feedForward: own.feedForward && (() => own.feedForward!(names, decoder, layer)),
    });
  }
  const lastNorm = top + modules.output_norm;
  for (
    const [name, module, length] of [
      ["output_norm", lastNorm, decoder.hidden],
      ["output", "lm_head", decoder.vocabulary],
    ] as const
  ) if (traits.biases?.includes(name)) list.vector(`${name}.bias`, `${module}.bias`, length);
  const further = checkpoint.entries?.(config, decoder) ?? [];
  return {
    decoder,
    architecture,
    entries: [
      ...replaced(decoderEntries(architecture, decoder, epsilonOf(traits)), architecture, widths),
      ...further.map(([name, type, value]) => entry(`${architecture}.${name}`, type, value)),
    ],
    lastNorm: { name: "output_norm.weight", tensor: `${lastNorm}.weight` },
    outputNorm: checkpoint.shiftedNorms === "of layers" ? undefined : normOf(checkpoint),
    ...checkpoint.encoder && { tied: true, leftOut: [["masked-token head", /^lm_head\./]] as const },
    ...checkpoint.tied !== undefined && { tied: config.boolean("tie_word_embeddings", checkpoint.tied) },
  };
}

/** Adds the tensors of one layer to the list. */
export function addLayer(
  list: TensorList,
  decoder: Omit<LayerSizes, "embedding"> & Pick<DecoderConfig, "hidden"> & {
    readonly constants?: Readonly<Record<string, number>>;
  },
  traits: Traits,
  checkpoint: Checkpoint,
  { block, from }: LayerNames,
  own: OwnTensors = {},
): void {
  const { heads, kvHeads, headDim, constants = {} } = decoder;
  const modules: Modules = {
    ...modulesOf(traits, checkpoint),
    ...heads > 0 && kvHeads === 0 && LINEAR_ATTENTION,
  };
  const map = normOf(checkpoint);
  const put = ({ name, kind, shape: [columns, rows], rotated }: LayerTensor) => {
    const [target, module] = [block + name, from + modules[name]];
    if (checkpoint.grouped && /^attn_[qkv]$/.test(name)) {
      const rowOrder = groupedRows(name, decoder, rotated && traits.interleavedRope);
      const of = (heads + 2 * kvHeads) * headDim;
      return list.matrix(target, from + checkpoint.grouped, rows, columns, { of, rowOrder });
    }
    if (checkpoint.grouped && name === "attn_qkv") {
      const order = ["attn_q", "attn_k", "attn_v"].flatMap((part) => groupedRows(part, decoder));
      if (kind === "bias") {
        return list.vector(`${target}.bias`, `${from}${checkpoint.grouped}.bias`, columns, { order });
      }
      return list.matrix(target, from + checkpoint.grouped, rows, columns, { rowOrder: order });
    }
    if (Object.hasOwn(constants, name)) {
      return list.made(`${target}.weight`, new Float32Array(columns).fill(constants[name]));
    }
    if (checkpoint.apart && name === "attn_qkv") {
      const parts = Object.entries({ attn_q: heads, attn_k: kvHeads, attn_v: kvHeads });
      const rows = parts.map(([part, count]) => [from + modules[part], count * headDim] as const);
      return kind === "bias"
        ? addJoinedBiases(list, `${target}.bias`, rows)
        : addJoined(list, target, rows, columns);
    }
    if (checkpoint.transposed && kind === "matrix") return addTransposed(list, target, module, rows, columns);
    const turned = rotated && traits.interleavedRope && !checkpoint.pairsKept;
    switch (kind) {
      case "matrix":
        return list.matrix(target, module, rows, columns, {
          rowOrder: turned ? interleavedPairs(rows / headDim, headDim) : undefined,
        });
      case "norm":
        return list.vector(`${target}.weight`, `${module}.weight`, columns, { map });
      case "bias":
        return list.vector(`${target}.bias`, `${module}.bias`, columns);
      case "head norms":
        return list.floats(`${target}.weight`, `${module}.weight`, rows, columns);
      case "sinks":
        return list.vector(`${target}.weight`, module, columns);
    }
  };
  layerTensors(traits, { ...decoder, embedding: decoder.hidden }, put, own);
}

/** Adds the matrices of a SwiGLU block to the list, under almost all families' names. */
export function addFeedForward(
  list: TensorList,
  decoder: DecoderConfig,
  { block, from }: LayerNames,
  checkpoint: Checkpoint = {},
): void {
  const modules = modulesOf({}, checkpoint);
  feedForwardTensors(
    {},
    { ...decoder, embedding: decoder.hidden },
    ({ name, shape: [columns, rows] }) => list.matrix(block + name, from + modules[name], rows, columns),
  );
}

/** Returns the checkpoint's module names by GGUF tensor name. */
export function modulesOf({ fusedGate, feedForwardNorm }: Traits, { modules }: Checkpoint): Modules {
  return {
    ...MODULES,
    ...fusedGate && FUSED_GATE,
    ...feedForwardNorm && { [feedForwardNorm]: MODULES.ffn_norm },
    ...modules,
  };
}

function normOf({ shiftedNorms }: Checkpoint): ((weight: number) => number) | undefined {
  return shiftedNorms ? (weight) => weight + 1 : undefined;
}

function epsilonOf({ layerNorms }: Traits) {
  return layerNorms ? "layer_norm_epsilon" as const : undefined;
}

/** Returns the rows of q, k or v in a matrix in which a KV head's key and value follow its query heads. */
function groupedRows(
  name: string,
  { heads, kvHeads, headDim }: Omit<LayerSizes, "embedding">,
  turned = false,
): Runs {
  const each = heads / kvHeads; // query heads per KV head
  const places = Array.from({ length: kvHeads }, (_, group) => {
    const first = group * (each + 2);
    if (name === "attn_q") return Array.from({ length: each }, (_, i) => first + i);
    return [first + each + (name === "attn_k" ? 0 : 1)];
  }).flat();
  const rows = turned ? interleavedPairs(1, headDim) : [[0, headDim]] as const;
  return places.flatMap((head) => rows.map(([row, length]) => [head * headDim + row, length] as const));
}

function addRopeFactors(list: TensorList, rope: RopeConfig): void {
  const { scaling } = rope;
  if (scaling.type === "llama3") list.made("rope_freqs.weight", llama3Factors(rope, scaling));
  if (scaling.type === "longrope") {
    list.made("rope_factors_long.weight", Float32Array.from(scaling.long));
    list.made("rope_factors_short.weight", Float32Array.from(scaling.short));
  }
}

/** Returns the entries, with arrays for values that differ between layers. */
function replaced(
  entries: ReturnType<typeof decoderEntries>,
  architecture: string,
  widths: readonly LayerWidths[] | undefined,
) {
  if (!widths) return entries;
  const lists: Readonly<Record<string, number[]>> = {
    [`${architecture}.attention.head_count`]: widths.map(({ heads }) => heads),
    [`${architecture}.attention.head_count_kv`]: widths.map(({ kvHeads }) => kvHeads),
    [`${architecture}.feed_forward_length`]: widths.map(({ feedForward }) => feedForward),
  };
  return [
    ...entries.filter(({ key }) => !Object.hasOwn(lists, key)),
    ...Object.entries(lists).map(([key, values]) => entry(key, "INT32", values)),
  ];
}
