import type { DecoderConfig } from "../../engine/architectures/checkpoint.ts";
import { decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import { Fields, inWords } from "../checkpoint/json.ts";
import { addScan, type MambaConfig, mambaEntries, MAX, readMamba } from "./mamba_hybrids.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

/** Multipliers in config.json. GGUF has no keys for them, so conversion multiplies the matrices. */
interface Multipliers {
  readonly embedding: number;
  readonly logits: number;
  readonly attention: { readonly in: number; readonly key: number; readonly out: number };
  readonly mamba: { readonly in: number; readonly parts: readonly number[]; readonly out: number };
  readonly gate: number;
  readonly down: number;
}

/** Converts Falcon-H1. `prefix` precedes `layers.0`. */
export function convertFalconH1(config: Fields, list: TensorList, prefix: string): ModelParts {
  refuseOtherModels(config);
  const decoder = readDecoderConfig(config, { scalings: ["linear"] });
  const mamba = readFalconMamba(config, decoder);
  const by = readMultipliers(config);
  const normed = config.boolean("mamba_rms_norm", false);
  for (let i = 0; i < decoder.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    list.vector(`${block}attn_norm.weight`, `${layer}input_layernorm.weight`, decoder.hidden);
    addAttention(list, decoder, by, block, `${layer}self_attn.`);
    addMamba(list, decoder.hidden, mamba, by, normed, block, `${layer}mamba.`);
    // GGUF's readers expect this norm's name without ".weight".
    list.vector(`${block}ffn_norm`, `${layer}pre_ff_layernorm.weight`, decoder.hidden);
    addFeedForward(list, decoder, by, block, `${layer}feed_forward.`);
  }
  addEnds(config, list, decoder, by, prefix);
  return {
    decoder,
    entries: [...decoderEntries("falcon-h1", decoder), ...mambaEntries("falcon-h1", mamba)],
    lastNorm: { name: "output_norm.weight", tensor: `${prefix}final_layernorm.weight` },
    tied: true, // an untied output matrix is written too, with its multiplier
  };
}

function refuseOtherModels(config: Fields): void {
  for (const name of ["mamba_proj_bias", "projectors_bias"]) {
    config.mustBe(name, false, "biases of Mamba2's matrices are not computed");
  }
  config.mustBe("mamba_conv_bias", true, "the convolution has a bias");
  config.mustBe("mamba_use_mlp", true, "all layers have a feed-forward block");
  // By default, the norm is applied before the gate.
  const name = "mamba_norm_before_gate";
  if (config.boolean("mamba_rms_norm", false) && config.boolean(name, true)) {
    config.refuse(name, "true", "false, because what the gate has multiplied is normed");
  }
}

/** Reads the shape of Mamba2. config.json has the channel count, or its ratio to the embedding's width. */
function readFalconMamba(config: Fields, { hidden }: DecoderConfig): MambaConfig {
  const heads = config.count("mamba_n_heads", MAX.heads);
  const inner = config.has("mamba_d_ssm")
    ? config.count("mamba_d_ssm", MAX.width)
    : hidden * config.positive("mamba_expand", MAX.scale, 2);
  const [name, headDim] = ["mamba_d_head", inner / heads];
  if (config.get(name) !== "auto") {
    config.mustBe(name, headDim, `${heads} heads have ${inner} channels`);
  }
  return readMamba(new Fields(config.file, { ...config.object, [name]: headDim }), {
    heads: "mamba_n_heads",
    headDim: name,
    groups: "mamba_n_groups",
    stateSize: "mamba_d_state",
    taps: "mamba_d_conv",
    limits: "time_step_limit",
  });
}

function readMultipliers(config: Fields): Multipliers {
  const one = (name: string) => config.positive(`${name}_multiplier`, MAX.scale, 1);
  const several = (name: string, length: number): number[] => {
    const factors = config.get(name) ?? Array(length).fill(1);
    const isFactor = (factor: unknown) => typeof factor === "number" && factor > 0 && factor <= MAX.scale;
    return Array.isArray(factors) && factors.length === length && factors.every(isFactor)
      ? factors
      : config.refuse(name, inWords(factors), `${length} numbers above 0`);
  };
  const [gate, down] = several("mlp_multipliers", 2);
  return {
    embedding: one("embedding"),
    logits: one("lm_head"),
    attention: { in: one("attention_in"), key: one("key"), out: one("attention_out") },
    mamba: { in: one("ssm_in"), parts: several("ssm_multipliers", 5), out: one("ssm_out") },
    gate,
    down,
  };
}

function addAttention(
  list: TensorList,
  { hidden, heads, kvHeads, headDim }: DecoderConfig,
  { attention: by }: Multipliers,
  block: string,
  from: string,
): void {
  list.multiplied(`${block}attn_q`, `${from}q_proj`, hidden, [[heads * headDim, by.in]]);
  list.multiplied(`${block}attn_k`, `${from}k_proj`, hidden, [[kvHeads * headDim, by.in * by.key]]);
  list.multiplied(`${block}attn_v`, `${from}v_proj`, hidden, [[kvHeads * headDim, by.in]]);
  list.multiplied(`${block}attn_output`, `${from}o_proj`, heads * headDim, [[hidden, by.out]]);
}

function addMamba(
  list: TensorList,
  hidden: number,
  mamba: MambaConfig,
  { mamba: by }: Multipliers,
  normed: boolean,
  block: string,
  from: string,
): void {
  const { heads, headDim, groups, stateSize } = mamba;
  const [inner, shared] = [heads * headDim, groups * stateSize];
  // Rows of the input matrix: gates, channels, B and C, step sizes.
  const parts = [inner, inner, shared, shared, heads].map((rows, i) => [rows, by.in * by.parts[i]] as const);
  list.multiplied(`${block}ssm_in`, `${from}in_proj`, hidden, parts);
  addScan(list, mamba, block, from);
  if (normed) {
    list.vector(`${block}ssm_norm.weight`, `${from}norm.weight`, inner, { shape: [inner / groups, groups] });
  }
  list.multiplied(`${block}ssm_out`, `${from}out_proj`, inner, [[hidden, by.out]]);
}

function addFeedForward(
  list: TensorList,
  { hidden, feedForward }: DecoderConfig,
  by: Multipliers,
  block: string,
  from: string,
): void {
  list.multiplied(`${block}ffn_gate`, `${from}gate_proj`, hidden, [[feedForward, by.gate]]);
  list.matrix(`${block}ffn_up`, `${from}up_proj`, feedForward, hidden);
  list.multiplied(`${block}ffn_down`, `${from}down_proj`, feedForward, [[hidden, by.down]]);
}

/** Adds the embedding and the output matrix to the list. A tied one becomes two if their multipliers differ. */
function addEnds(
  config: Fields,
  list: TensorList,
  { hidden, vocabulary }: DecoderConfig,
  by: Multipliers,
  prefix: string,
): void {
  const [embedding, head] = [`${prefix}embed_tokens`, "lm_head"];
  list.multiplied("token_embd", embedding, hidden, [[vocabulary, by.embedding]]);
  const tied = config.boolean("tie_word_embeddings", !list.finder.has(`${head}.weight`));
  if (tied && by.embedding === by.logits) return;
  list.multiplied("output", tied ? embedding : head, hidden, [[vocabulary, by.logits]]);
}
