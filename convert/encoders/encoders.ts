import { affine, affineNorm } from "../affine.ts";
import { quote } from "../../engine/gguf/errors.ts";
import { MAX } from "../../engine/architectures/checkpoint.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_TYPES = 1024;
const MAX_LABELS = 1024;
const MAX_PERIOD = 1024;
const MAX_EXPERTS = 4096;

/** A converted encoder. Its tensors are in the list. */
export interface EncoderParts {
  /** Architecture of the file, if it is not the model type's. */
  readonly architecture?: string;
  readonly vocabulary: number;
  readonly entries: readonly Entry[];
}

/** Values that every encoder's config.json has, under its own names. */
interface EncoderShape {
  readonly layers: number;
  readonly hidden: number;
  readonly feedForward: number;
  readonly heads: number;
  readonly context: number;
  readonly epsilon: number;
  readonly vocabulary: number;
}

type Names = Readonly<Record<keyof EncoderShape, string>>;

const HUGGING_FACE: Names = {
  layers: "num_hidden_layers",
  hidden: "hidden_size",
  feedForward: "intermediate_size",
  heads: "num_attention_heads",
  context: "max_position_embeddings",
  epsilon: "layer_norm_eps",
  vocabulary: "vocab_size",
};
const NOMIC: Names = {
  layers: "n_layer",
  hidden: "n_embd",
  feedForward: "n_inner",
  heads: "n_head",
  context: "n_positions",
  epsilon: "layer_norm_epsilon",
  vocabulary: "vocab_size",
};

function readShape(config: Fields, names: Names): EncoderShape {
  const hidden = config.count(names.hidden, MAX.hidden);
  return {
    layers: config.count(names.layers, MAX.layers),
    hidden,
    feedForward: config.count(names.feedForward, MAX.feedForward, 4 * hidden),
    heads: config.count(names.heads, MAX.heads),
    context: config.count(names.context, MAX.context),
    epsilon: config.positive(names.epsilon, 1),
    vocabulary: config.count(names.vocabulary, MAX.vocabulary),
  };
}

function shapeEntries(architecture: string, shape: EncoderShape): Entry[] {
  const key = (name: string) => `${architecture}.${name}`;
  return [
    entry(key("block_count"), "UINT32", shape.layers),
    entry(key("context_length"), "UINT32", shape.context),
    entry(key("embedding_length"), "UINT32", shape.hidden),
    entry(key("feed_forward_length"), "UINT32", shape.feedForward),
    entry(key("attention.head_count"), "UINT32", shape.heads),
    entry(key("attention.layer_norm_epsilon"), "FLOAT32", shape.epsilon),
    entry(key("attention.causal"), "BOOL", false),
  ];
}

/** Adds the table of token types to the list, as floats like the table of positions. */
function tokenTypes(list: TensorList, module: string, config: Fields, hidden: number): Entry[] {
  const count = config.count("type_vocab_size", MAX_TYPES, 1);
  list.table("token_types", module, count, hidden);
  return [entry("tokenizer.ggml.token_type_count", "UINT32", count)];
}

/** Returns the names of a classifier's labels; none where config.json has none. */
export function labelEntries(architecture: string, config: Fields): { labels: number; entries: Entry[] } {
  const names = Object.values(config.fields("id2label")?.object ?? {}).map(String);
  const labels = names.length || config.count("num_labels", MAX_LABELS, 1);
  return {
    labels,
    entries: [
      entry(`${architecture}.pooling_type`, "UINT32", 4),
      ...(names.length > 0 ? [entry(`${architecture}.classifier.output_labels`, "STRING", names)] : []),
    ],
  };
}

const GELUS: readonly unknown[] = ["gelu", "gelu_new", "gelu_pytorch_tanh"];

function mustBeGelu(config: Fields, key: string): void {
  if (GELUS.includes(config.get(key) ?? "gelu")) return;
  config.refuse(key, quote(String(config.get(key))), GELUS.map((name) => quote(String(name))).join(", "));
}

/** Converts Hugging Face's `bert`, with or without a classification head. */
export function convertBert(config: Fields, list: TensorList): EncoderParts {
  if (config.get("position_embedding_type") === "alibi") return convertJinaBertV2(config, list);
  const prefix = list.finder.has("bert.embeddings.word_embeddings.weight") ? "bert." : "";
  const head = { dense: `${prefix}pooler.dense`, labels: "classifier" };
  return addBert(config, list, { prefix, unread: 0, head });
}

/** Tensor names and rows in which encoders with BERT's layers differ. */
interface BertNames {
  readonly prefix: string;
  /** Number of first rows of the position table that no text reads. */
  readonly unread: number;
  readonly head: { readonly dense: string; readonly labels: string };
}

/** Converts BERT's layers. */
export function addBert(
  config: Fields,
  list: TensorList,
  { prefix, unread, head: names }: BertNames,
): EncoderParts {
  mustBeGelu(config, "hidden_act");
  config.mustBe("position_embedding_type", "absolute", "no other positions are computed");
  config.mustBe("is_decoder", false, "encoders attend in both directions");
  const { context: rows, ...rest } = readShape(config, HUGGING_FACE);
  if (rows <= unread) config.refuse("max_position_embeddings", String(rows), `more than ${unread}`);
  const shape = { ...rest, context: rows - unread };
  const { hidden, feedForward } = shape;
  const embeddings = `${prefix}embeddings.`;
  list.matrix("token_embd", `${embeddings}word_embeddings`, shape.vocabulary, hidden);
  list.table("position_embd", `${embeddings}position_embeddings`, shape.context, hidden, unread);
  const types = tokenTypes(list, `${embeddings}token_type_embeddings`, config, hidden);
  affineNorm(list, "token_embd_norm", `${embeddings}LayerNorm`, hidden);
  for (let i = 0; i < shape.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}encoder.layer.${i}.`];
    addBertAttention(list, block, layer, hidden);
    affine(list, `${block}ffn_up`, `${layer}intermediate.dense`, feedForward, hidden);
    affine(list, `${block}ffn_down`, `${layer}output.dense`, hidden, feedForward);
    affineNorm(list, `${block}layer_output_norm`, `${layer}output.LayerNorm`, hidden);
  }
  const entries = [...shapeEntries("bert", shape), ...types];
  if (!list.finder.has(`${names.labels}.weight`)) return { vocabulary: shape.vocabulary, entries };
  const head = labelEntries("bert", config);
  affine(list, "cls", names.dense, hidden, hidden);
  affine(list, "cls.output", names.labels, head.labels, hidden);
  return { vocabulary: shape.vocabulary, entries: [...entries, ...head.entries] };
}

/** Adds the attention tensors of a BERT layer to the list, including its norm. */
function addBertAttention(list: TensorList, block: string, layer: string, hidden: number): void {
  for (const part of ["query", "key", "value"]) {
    affine(list, `${block}attn_${part[0]}`, `${layer}attention.self.${part}`, hidden, hidden);
  }
  affine(list, `${block}attn_output`, `${layer}attention.output.dense`, hidden, hidden);
  affineNorm(list, `${block}attn_output_norm`, `${layer}attention.output.LayerNorm`, hidden);
}

/** Converts Jina embeddings v2, whose model type is `bert`: ALiBi, and GeGLU with gate and up in one matrix. */
function convertJinaBertV2(config: Fields, list: TensorList): EncoderParts {
  mustBeGelu(config, "hidden_act");
  config.mustBe("feed_forward_type", "geglu", "no other feed-forward block is computed");
  const shape = readShape(config, HUGGING_FACE);
  const { hidden, feedForward } = shape;
  const prefix = list.finder.has("bert.embeddings.word_embeddings.weight") ? "bert." : "";
  list.matrix("token_embd", `${prefix}embeddings.word_embeddings`, shape.vocabulary, hidden);
  const types = tokenTypes(list, `${prefix}embeddings.token_type_embeddings`, config, hidden);
  affineNorm(list, "token_embd_norm", `${prefix}embeddings.LayerNorm`, hidden);
  for (let i = 0; i < shape.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}encoder.layer.${i}.`];
    addBertAttention(list, block, layer, hidden);
    list.matrix(`${block}ffn_up`, `${layer}mlp.gated_layers`, 2 * feedForward, hidden);
    affine(list, `${block}ffn_down`, `${layer}mlp.wo`, hidden, feedForward);
    affineNorm(list, `${block}layer_output_norm`, `${layer}mlp.layernorm`, hidden);
  }
  const architecture = "jina-bert-v2";
  const entries = [...shapeEntries(architecture, shape), ...types];
  return { architecture, vocabulary: shape.vocabulary, entries };
}

/** Converts `nomic_bert`: SwiGLU without biases, or, as `nomic-bert-moe`, GELU, biases and experts in some layers. */
export function convertNomicBert(config: Fields, list: TensorList): EncoderParts {
  const mixture = readNomicMixture(config);
  const biased = mixture !== undefined;
  const activation = biased ? "gelu" : "swiglu";
  config.mustBe("activation_function", activation, "no other feed-forward block is computed");
  for (const key of ["qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"]) {
    config.mustBe(key, biased, biased ? "models with experts have biases" : "nothing else is converted");
  }
  for (const key of ["prenorm", "causal", "use_rms_norm"]) {
    config.mustBe(key, false, "nothing else is converted");
  }
  const linear = biased ? affine : (...[list, ...rest]: Parameters<typeof affine>) => list.matrix(...rest);
  config.mustBe("rotary_emb_interleaved", false, "pairs of dimensions are half a head apart");
  config.mustBe("rotary_emb_fraction", 1, "whole heads are rotated");
  const shape = readShape(config, NOMIC);
  const { hidden, feedForward } = shape;
  list.matrix("token_embd", "embeddings.word_embeddings", shape.vocabulary, hidden);
  const types = tokenTypes(list, "embeddings.token_type_embeddings", config, hidden);
  affineNorm(list, "token_embd_norm", "emb_ln", hidden);
  for (let i = 0; i < shape.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `encoder.layers.${i}.`];
    linear(list, `${block}attn_qkv`, `${layer}attn.Wqkv`, 3 * hidden, hidden);
    linear(list, `${block}attn_output`, `${layer}attn.out_proj`, hidden, hidden);
    affineNorm(list, `${block}attn_output_norm`, `${layer}norm1`, hidden);
    if (mixture && i % mixture.period === 1) {
      addNomicExperts(list, shape, mixture.count, block, `${layer}mlp.`);
    } else {
      linear(list, `${block}ffn_up`, `${layer}mlp.${mixture ? "fc1" : "fc11"}`, feedForward, hidden);
      if (!mixture) list.matrix(`${block}ffn_gate`, `${layer}mlp.fc12`, feedForward, hidden);
      linear(list, `${block}ffn_down`, `${layer}mlp.fc2`, hidden, feedForward);
    }
    affineNorm(list, `${block}layer_output_norm`, `${layer}norm2`, hidden);
  }
  const base = config.positive("rotary_emb_base", MAX.base, 10_000);
  const architecture = mixture ? "nomic-bert-moe" : "nomic-bert";
  const entries = [
    ...shapeEntries(architecture, shape),
    ...types,
    entry(`${architecture}.rope.freq_base`, "FLOAT32", base),
    ...mixture
      ? [
        entry(`${architecture}.moe_every_n_layers`, "UINT32", mixture.period),
        entry(`${architecture}.expert_count`, "UINT32", mixture.count),
        entry(`${architecture}.expert_used_count`, "UINT32", mixture.used),
      ]
      : [],
  ];
  return { architecture, vocabulary: shape.vocabulary, entries };
}

interface NomicMixture {
  /** Layers per period of experts. The second layer of a period has experts. */
  readonly period: number;
  readonly count: number;
  readonly used: number;
}

function readNomicMixture(config: Fields): NomicMixture | undefined {
  const every = "moe_every_n_layers";
  if ((config.get(every) ?? 0) === 0) return undefined;
  const period = config.count(every, MAX_PERIOD);
  if (period === 1) config.refuse(every, "1", `0, or 2 to ${MAX_PERIOD}`);
  for (const key of ["moe_normalize_expert_weights", "expert_choice_router"]) {
    config.mustBe(key, false, "weights are the softmax over all experts");
  }
  config.mustBe("num_shared_experts", 0, "shared experts are not computed");
  const count = config.count("num_experts", MAX_EXPERTS);
  return { period, count, used: config.count("moe_top_k", count) };
}

/** Adds the experts to the list, without their common bias, for which GGUF has no tensor. */
function addNomicExperts(
  list: TensorList,
  { hidden, feedForward }: EncoderShape,
  count: number,
  block: string,
  mlp: string,
): void {
  list.floats(`${block}ffn_gate_inp.weight`, `${mlp}router.layer.weight`, count, hidden);
  const up = { count, rows: feedForward, columns: hidden };
  list.stacked(
    `${block}ffn_up_exps`,
    list.finder.stack(`${mlp}experts.mlp.w1`, [count * feedForward, hidden]),
    up,
  );
  const down = { count, rows: hidden, columns: feedForward };
  list.turned(
    `${block}ffn_down_exps`,
    list.finder.stack(`${mlp}experts.mlp.w2`, [count * feedForward, hidden]),
    down,
  );
}

/** Layers per period of windows that GGUF's readers expect. The first layer of a period has no window. */
const PERIOD = 3;

/** Converts Hugging Face's `modernbert`, with or without a classification head. */
export function convertModernBert(config: Fields, list: TensorList): EncoderParts {
  mustBeGelu(config, "hidden_activation");
  for (const key of ["attention_bias", "mlp_bias", "norm_bias"]) {
    config.mustBe(key, false, "its bias is not converted");
  }
  config.mustBe("global_attn_every_n_layers", PERIOD, "readers know no other period of layers");
  refuseOtherLayers(config);
  const shape = readShape(config, { ...HUGGING_FACE, epsilon: "norm_eps" });
  const { hidden, feedForward } = shape;
  const prefix = list.finder.has("model.embeddings.tok_embeddings.weight") ? "model." : "";
  const weight = (name: string, module: string) => list.vector(`${name}.weight`, `${module}.weight`, hidden);
  list.matrix("token_embd", `${prefix}embeddings.tok_embeddings`, shape.vocabulary, hidden);
  weight("token_embd_norm", `${prefix}embeddings.norm`);
  for (let i = 0; i < shape.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    if (i > 0) weight(`${block}attn_norm`, `${layer}attn_norm`);
    list.matrix(`${block}attn_qkv`, `${layer}attn.Wqkv`, 3 * hidden, hidden);
    list.matrix(`${block}attn_output`, `${layer}attn.Wo`, hidden, hidden);
    weight(`${block}ffn_norm`, `${layer}mlp_norm`);
    list.matrix(`${block}ffn_up`, `${layer}mlp.Wi`, 2 * feedForward, hidden);
    list.matrix(`${block}ffn_down`, `${layer}mlp.Wo`, hidden, feedForward);
  }
  weight("output_norm", `${prefix}final_norm`);
  const key = (name: string) => `modern-bert.${name}`;
  const entries = [
    ...shapeEntries("modern-bert", shape),
    entry(key("attention.sliding_window"), "UINT32", config.count("local_attention", MAX.context, 128)),
    entry(key("rope.freq_base"), "FLOAT32", ropeBase(config, "full_attention", "global_rope_theta", 160_000)),
    entry(
      key("rope.freq_base_swa"),
      "FLOAT32",
      ropeBase(config, "sliding_attention", "local_rope_theta", 10_000),
    ),
  ];
  if (!list.finder.has("classifier.weight")) return { vocabulary: shape.vocabulary, entries };
  refuseOtherHeads(config);
  const head = labelEntries("modern-bert", config);
  list.matrix("cls", "head.dense", hidden, hidden);
  weight("cls.norm", "head.norm");
  affine(list, "cls.output", "classifier", head.labels, hidden);
  return { vocabulary: shape.vocabulary, entries: [...entries, ...head.entries] };
}

/** Returns the rotary base of one kind of layer. Older checkpoints have the base under the key `older`. */
function ropeBase(config: Fields, kind: string, older: string, usual: number): number {
  const ropes = config.fields("rope_parameters");
  if (!ropes) return config.positive(older, MAX.base, usual);
  const rope = ropes.fields(kind) ?? ropes.refuse(kind, "nothing", "an object");
  rope.mustBe("rope_type", "default", "no scaling is computed");
  return rope.positive("rope_theta", MAX.base, usual);
}

function refuseOtherLayers(config: Fields): void {
  const types = config.get("layer_types");
  if (types === undefined) return;
  const usual = (type: unknown, i: number) =>
    type === (i % PERIOD === 0 ? "full_attention" : "sliding_attention");
  if (Array.isArray(types) && types.every(usual)) return;
  config.refuse(
    "layer_types",
    inWords(types),
    "full_attention in every third layer, sliding_attention in the others",
  );
}

/** Throws ConvertError for a classification head that GGUF has no keys for. */
function refuseOtherHeads(config: Fields): void {
  const pooling = "classifier_pooling";
  const found = config.string(pooling, "cls");
  if (found !== "mean") config.refuse(pooling, quote(found), `"mean", as readers take it`);
  config.mustBe("classifier_bias", false, "its bias is not converted");
  mustBeGelu(config, "classifier_activation");
}
