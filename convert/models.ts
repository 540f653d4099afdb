import { FAMILIES } from "../engine/architectures/families.ts";
import { quote } from "../engine/gguf/errors.ts";
import type { Checkpoint } from "./checkpoint/checkpoint.ts";
import {
  convertBert,
  convertModernBert,
  convertNomicBert,
  type EncoderParts,
  labelEntries,
} from "./encoders/encoders.ts";
import { convertXlmRoberta } from "./encoders/xlm_roberta.ts";
import { convertAfmoe } from "./mixtures/afmoe.ts";
import { convertCohere2Moe } from "./mixtures/cohere2_moe.ts";
import { convertDeepseek2, convertDeepseek32, convertGlmDsa, convertMistral4 } from "./mixtures/deepseek2.ts";
import { convertErnie45Moe } from "./mixtures/ernie45.ts";
import { convertDecoder } from "./decoder.ts";
import { isFloat, type SafeTensor } from "./checkpoint/tensors.ts";
import { refuse } from "./errors.ts";
import { convertFalconH1 } from "./hybrids/falcon_h1.ts";
import { convertGemma3n } from "./dense/gemma3n.ts";
import { convertGemma4 } from "./dense/gemma4.ts";
import { convertMinicpm3 } from "./dense/minicpm3.ts";
import { convertGptOss } from "./mixtures/gpt_oss.ts";
import type { Fields } from "./checkpoint/json.ts";
import { convertBailingMoe3, convertKimiLinear } from "./hybrids/kimi_linear.ts";
import { convertLfm2, convertLfm2Moe } from "./hybrids/lfm2.ts";
import { convertGraniteMoe } from "./mixtures/granite_moe.ts";
import { convertMamba2 } from "./hybrids/mamba2.ts";
import { convertGraniteHybrid } from "./hybrids/mamba_hybrids.ts";
import {
  convertHunyuanMoe,
  convertMellum,
  convertOlmoe,
  convertQwen2Moe,
  convertQwen3Moe,
  convertQwen3VlMoe,
} from "./mixtures/mixtures.ts";
import { convertLlama4 } from "./mixtures/llama4.ts";
import { convertMinimaxM2, convertMinimaxM3 } from "./mixtures/minimax.ts";
import { convertSmallThinker } from "./mixtures/smallthinker.ts";
import { convertStep35 } from "./mixtures/step35.ts";
import { convertLaguna, convertMimo2 } from "./mixtures/windowed.ts";
import { convertNemotronH } from "./hybrids/nemotron_h.ts";
import { readNumbers } from "./quantized/numbers.ts";
import { WeightFinder } from "./write/matrix_source.ts";
import { type Entry, entry } from "./write/metadata.ts";
import type { LeftOut, ModelParts } from "./model_parts.ts";
import type { OutputTensor } from "./write/output_tensor.ts";
import type { Ranker } from "./encoders/ranker.ts";
import type { Quantization } from "./quantize/quantization.ts";
import { convertQwen35, convertQwen35Moe, convertQwen3Next } from "./hybrids/qwen35.ts";
import {
  convertBailingMoe2,
  convertDeepseek,
  convertDots1,
  convertExaoneMoe,
  convertGlm4Moe,
  convertHyV3,
} from "./mixtures/sigmoid_experts.ts";
import { TensorList } from "./tensor_list.ts";

/** Keys and tensors of the GGUF file to write. */
export interface ConvertedModel {
  readonly architecture: string;
  readonly vocabulary: number;
  readonly entries: readonly Entry[];
  readonly tensors: readonly OutputTensor[];
  /** Number of tensors that were left out, by model part. */
  readonly leftOut: Readonly<Record<string, number>>;
}

type Convert = (config: Fields, list: TensorList, prefix: string) => ModelParts;

interface Kind {
  readonly architecture: string;
  readonly convert: Convert;
}

/** Models with a separate converter, by `model_type`. */
const OTHERS: Readonly<Record<string, Kind>> = {
  granitemoehybrid: { architecture: "granitehybrid", convert: convertGraniteHybrid },
  deepseek: { architecture: "deepseek", convert: convertDeepseek },
  deepseek_v2: { architecture: "deepseek2", convert: convertDeepseek2 },
  deepseek_v3: { architecture: "deepseek2", convert: convertDeepseek2 },
  deepseek_v32: { architecture: "deepseek32", convert: convertDeepseek32 },
  glm_moe_dsa: { architecture: "glm-dsa", convert: convertGlmDsa },
  glm4_moe_lite: { architecture: "deepseek2", convert: convertDeepseek2 },
  mistral4: { architecture: "mistral4", convert: convertMistral4 },
  kimi_k2: { architecture: "deepseek2", convert: convertDeepseek2 },
  minicpm3: { architecture: "minicpm3", convert: convertMinicpm3 },
  cohere2_moe: { architecture: "cohere2moe", convert: convertCohere2Moe },
  ernie4_5_moe: { architecture: "ernie4_5-moe", convert: convertErnie45Moe },
  olmoe: { architecture: "olmoe", convert: convertOlmoe },
  hunyuan_v1_moe: { architecture: "hunyuan-moe", convert: convertHunyuanMoe },
  mellum: { architecture: "mellum", convert: convertMellum },
  minimax: { architecture: "minimax-m2", convert: convertMinimaxM2 },
  minimax_m2: { architecture: "minimax-m2", convert: convertMinimaxM2 },
  minimax_m3_vl: { architecture: "minimax-m3", convert: convertMinimaxM3 },
  minimax_m3_vl_text: { architecture: "minimax-m3", convert: convertMinimaxM3 },
  llama4: { architecture: "llama4", convert: convertLlama4 },
  llama4_text: { architecture: "llama4", convert: convertLlama4 },
  laguna: { architecture: "laguna", convert: convertLaguna },
  mimo_v2_flash: { architecture: "mimo2", convert: convertMimo2 },
  step3p5: { architecture: "step35", convert: convertStep35 },
  step3p7: { architecture: "step35", convert: convertStep35 },
  smallthinker: { architecture: "smallthinker", convert: convertSmallThinker },
  kimi_linear: { architecture: "kimi-linear", convert: convertKimiLinear },
  bailing_hybrid: { architecture: "bailingmoe3", convert: convertBailingMoe3 },
  granitemoe: { architecture: "granitemoe", convert: convertGraniteMoe },
  granitemoeshared: { architecture: "granitemoe", convert: convertGraniteMoe },
  falcon_h1: { architecture: "falcon-h1", convert: convertFalconH1 },
  mamba2: { architecture: "mamba2", convert: convertMamba2 },
  nemotron_h: { architecture: "nemotron_h", convert: convertNemotronH },
  qwen2_moe: { architecture: "qwen2moe", convert: convertQwen2Moe },
  qwen3_moe: { architecture: "qwen3moe", convert: convertQwen3Moe },
  qwen3_vl_moe: { architecture: "qwen3vlmoe", convert: convertQwen3VlMoe },
  afmoe: { architecture: "afmoe", convert: convertAfmoe },
  gemma3n: { architecture: "gemma3n", convert: convertGemma3n },
  gemma3n_text: { architecture: "gemma3n", convert: convertGemma3n },
  gemma4: { architecture: "gemma4", convert: convertGemma4 },
  gemma4_text: { architecture: "gemma4", convert: convertGemma4 },
  exaone_moe: { architecture: "exaone-moe", convert: convertExaoneMoe },
  dots1: { architecture: "dots1", convert: convertDots1 },
  hy_v3: { architecture: "hy_v3", convert: convertHyV3 },
  glm4_moe: { architecture: "glm4moe", convert: convertGlm4Moe },
  bailing_moe: { architecture: "bailingmoe2", convert: convertBailingMoe2 },
  bailing_moe_v2: { architecture: "bailingmoe2", convert: convertBailingMoe2 },
  gpt_oss: { architecture: "gpt-oss", convert: convertGptOss },
  qwen3_5: { architecture: "qwen35", convert: convertQwen35 },
  qwen3_5_text: { architecture: "qwen35", convert: convertQwen35 },
  qwen3_next: { architecture: "qwen3next", convert: convertQwen3Next },
  qwen3_5_moe: { architecture: "qwen35moe", convert: convertQwen35Moe },
  qwen3_5_moe_text: { architecture: "qwen35moe", convert: convertQwen35Moe },
  lfm2: { architecture: "lfm2", convert: convertLfm2 },
  lfm2_moe: { architecture: "lfm2moe", convert: convertLfm2Moe },
};

/** Models whose conversion follows a family's description. */
const DESCRIBED = [...FAMILIES.values()].flatMap((family) =>
  Object.entries(family.checkpoints ?? {}).map(([type, checkpoint]): [string, Kind] => {
    const convert: Convert = (config, list, prefix) =>
      convertDecoder(config, list, prefix, family, checkpoint);
    return [type, { architecture: family.architecture, convert }];
  })
);

/** Converters of decoders, by `model_type`. */
const MODELS: Readonly<Record<string, Kind>> = { ...Object.fromEntries(DESCRIBED), ...OTHERS };

/** Converters of encoders, by `model_type`. */
const ENCODERS: Readonly<
  Record<
    string,
    {
      readonly architecture: string;
      readonly convert: (config: Fields, list: TensorList) => EncoderParts;
    }
  >
> = {
  bert: { architecture: "bert", convert: convertBert },
  "xlm-roberta": { architecture: "bert", convert: convertXlmRoberta },
  nomic_bert: { architecture: "nomic-bert", convert: convertNomicBert },
  modernbert: { architecture: "modern-bert", convert: convertModernBert },
};

/** Types of multimodal models whose `text_config` has its own `model_type`. */
const WRAPPERS: readonly string[] = ["idefics3", "llava", "smolvlm"];

/** The supported values of `model_type`. */
export const MODEL_TYPES: readonly string[] = [...Object.keys(MODELS), ...Object.keys(ENCODERS), ...WRAPPERS];

/**
 * Possible prefixes of the embedding's name. In this order: text models, multimodal models of Hugging Face and of MLX,
 * SmolVLM, GPT-2 and its relatives, GPT-NeoX, text models without a head.
 */
const PREFIXES = [
  "model.",
  "model.language_model.",
  "language_model.model.",
  "model.text_model.",
  "transformer.",
  "gpt_neox.",
  "",
];
/** Possible names of the embedding. */
const EMBEDDINGS = ["embed_tokens", "wte", "embed_in"];
/** Possible names of the output matrix: in most models, in multimodal ones, in InternLM, in GPT-NeoX. */
const OUTPUTS = ["lm_head", "language_model.lm_head", "output", "embed_out"];

/** Name of a decoder's classification head, which reads the last token's row. */
const CLASSIFIER = "score";

const VISION_MODULES =
  "vision_(tower|model|embedder|adapter|projection)|visual|multi_modal_projector|connector|" +
  "embed_vision|patch_merge_mlp|vit_large_projector";
/** Matches the names of a vision tower's tensors. */
export const VISION = new RegExp(`^(model\\.)?(${VISION_MODULES})\\.`);

/** Tensors that are left out of every model. */
const LEFT_OUT: LeftOut = [
  ["vision", VISION],
  ["audio", /^(model\.)?(audio_tower|embed_audio)\./],
  ["multi-token prediction", /(^|\.)mtp\./],
  ["rotary frequencies", /\.rotary_emb\.inv_freq$/],
  ["masks of attention", /\.(attn|attention)\.(masked_)?bias$/],
  ["numbers of positions", /(^|\.)embeddings\.position_ids$/],
  ["experts' common bias", /\.mlp\.experts\.bias$/],
  ["next-sentence head", /^(bert\.)?pooler\./],
  ["masked-token head", /^(cls\.|decoder\.|head\.)/],
];

/**
 * Converts the model that config.json and the tensors describe. Throws ConvertError for an unsupported model type, a
 * missing or wrong key or tensor, and a tensor that no part of the model reads.
 */
export function convertModel(
  root: Fields,
  checkpoint: Checkpoint,
  quantize: Quantization | undefined,
  ranker?: Ranker,
): ConvertedModel {
  const type = modelTypeOf(root);
  if (Object.hasOwn(ENCODERS, type)) return convertEncoder(type, root, checkpoint, quantize);
  if (!Object.hasOwn(MODELS, type)) {
    root.refuse(
      "model_type",
      quote(type),
      MODEL_TYPES.map(quote).join(", "),
    );
  }
  const { convert, ...known } = MODELS[type];
  const config = root.fields("text_config") ?? root;
  const finder = new WeightFinder(checkpoint, root);
  const list = new TensorList(checkpoint, finder, quantize);
  const isPrefix = (prefix: string) => EMBEDDINGS.some((name) => finder.has(`${prefix}${name}.weight`));
  const prefix = PREFIXES.find(isPrefix) ?? PREFIXES[0];
  const parts = convert(config, list, prefix);
  const { decoder, entries, outputNorm, architecture = known.architecture } = parts;
  const { name, tensor } = parts.lastNorm ?? { name: "output_norm.weight", tensor: `${prefix}norm.weight` };
  list.vector(name, tensor, decoder.hidden, { map: outputNorm });
  const output = OUTPUTS.find((module) => finder.has(`${module}.weight`)) ?? OUTPUTS[0];
  // config.json may omit a family's default. A model without an output matrix must be tied.
  const isClassifier = finder.has(`${CLASSIFIER}.weight`);
  const tied = parts.tied ?? (isClassifier ||
    (config.has("tie_word_embeddings") ? config : root).boolean(
      "tie_word_embeddings",
      !finder.has(`${output}.weight`),
    ));
  if (!tied) list.matrix("output", output, decoder.vocabulary, decoder.hidden);
  const classifier = isClassifier ? labelEntries(architecture, root) : undefined;
  if (classifier) list.matrix("cls.output", CLASSIFIER, classifier.labels, decoder.hidden);
  else if (ranker) {
    const module = tied ? `${prefix}embed_tokens` : output;
    list.rows("cls.output", module, ranker.ids, decoder.vocabulary, decoder.hidden);
  }
  const own = new Set(classifier?.entries.map(({ key }) => key));
  const ranking = ranker?.entries(architecture).filter(({ key }) => !own.has(key)) ?? [];
  return {
    architecture,
    vocabulary: decoder.vocabulary,
    entries: [
      entry("general.architecture", "STRING", architecture),
      ...entries,
      ...deepEntries(architecture, root),
      ...classifier?.entries ?? [],
      ...ranking,
    ],
    tensors: list.tensors,
    leftOut: countLeftOut(checkpoint, finder.used, tied ? output : undefined, parts.leftOut),
  };
}

/**
 * Returns `model_type`, or the text part's type if `WRAPPERS` lists the model. Mistral Small 4 is a special case, because
 * its `model_type` is that of Mistral Small 3.
 */
function modelTypeOf(root: Fields): string {
  const type = root.string("model_type");
  const text = root.fields("text_config");
  if (type === "mistral3" && text?.get("model_type") === "mistral4") return "mistral4";
  return WRAPPERS.includes(type) && text ? text.string("model_type", "llama") : type;
}

/** Returns the metadata entry with the number of decoder layers that add deepstack rows of Qwen3-VL's tower, if any. */
function deepEntries(architecture: string, root: Fields): Entry[] {
  const deep = root.fields("vision_config")?.get("deepstack_visual_indexes");
  if (!Array.isArray(deep) || deep.length === 0) return [];
  return [entry(`${architecture}.n_deepstack_layers`, "UINT32", deep.length)];
}

function convertEncoder(
  type: string,
  config: Fields,
  checkpoint: Checkpoint,
  quantize: Quantization | undefined,
): ConvertedModel {
  const { convert, ...known } = ENCODERS[type];
  const finder = new WeightFinder(checkpoint, config);
  const list = new TensorList(checkpoint, finder, quantize);
  const { vocabulary, entries, architecture = known.architecture } = convert(config, list);
  return {
    architecture,
    vocabulary,
    entries: [entry("general.architecture", "STRING", architecture), ...entries],
    tensors: list.tensors,
    leftOut: countLeftOut(checkpoint, finder.used, undefined),
  };
}

/**
 * Returns the number of tensors left out, by model part. Throws ConvertError for a tensor that is neither used nor
 * known.
 */
function countLeftOut(
  checkpoint: Checkpoint,
  used: ReadonlySet<string>,
  tiedOutput: string | undefined,
  ofModel: LeftOut = [],
): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const tensor of checkpoint.tensors.values()) {
    const { name, file } = tensor;
    if (used.has(name)) continue;
    let what = [...LEFT_OUT, ...ofModel].find(([, pattern]) => pattern.test(name))?.[0];
    // A tied output matrix is not read, even if the checkpoint has one.
    // AutoGPTQ saves biases of 0 for matrices without biases.
    if (name.endsWith(".bias") && isZero(checkpoint, tensor)) what ??= "biases of 0";
    if (tiedOutput !== undefined && name.startsWith(`${tiedOutput}.`)) what ??= "tied output";
    if (what === undefined) {
      refuse(file, `tensor ${quote(name)}`, "no part of the model reads it");
    }
    counts[what] = (counts[what] ?? 0) + 1;
  }
  return counts;
}

/** Maximum number of values of an unused bias that is compared with 0. */
const MAX_BIAS = 1 << 21;

function isZero(checkpoint: Checkpoint, tensor: SafeTensor): boolean {
  if (!isFloat(tensor.dtype) || tensor.shape.length !== 1 || tensor.shape[0] > MAX_BIAS) return false;
  return readNumbers(checkpoint, tensor).every((value) => value === 0);
}
