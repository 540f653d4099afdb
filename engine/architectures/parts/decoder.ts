import type { Hparams, LayerShape } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { activated } from "../../plan/ops/activated.ts";
import { embed } from "../../plan/ops/embed.ts";
import { embedPositions } from "../../plan/ops/embed_positions.ts";
import { glu } from "../../plan/ops/glu.ts";
import { layerNorm } from "../../plan/ops/layer_norm.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { postNorm } from "../../plan/ops/post_norm.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import type { RopeOptions } from "../../plan/ops/rope_append.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { TensorName } from "../architecture.ts";
import type { Traits } from "../traits.ts";
import { layersBeforeDrafts } from "../left_out.ts";
import { addDraftLayer, type DraftBlock } from "./draft_layer.ts";
import { groupedAttention, type GroupedHeads, groupedKeys } from "./grouped_attention.ts";
import { handOut } from "./hidden_rows.ts";
import { deepenImages, placeImages } from "./images.ts";
import type { Rope } from "./rope.ts";
import type { LayerAttention } from "./windows.ts";

/** A decoder's traits, with additions by the family's code or the file. */
export interface DecoderTraits extends Traits {
  /** Number of layers to run; by default all layers of the file. */
  readonly layerCount?: number;
  /** Returns whether a layer's heads are rotated; by default `positionlessEvery` decides. */
  readonly hasPositions?: (layer: number) => boolean;
  /**
   * Attention window and rotary table of each layer; by default no window and the file's angles. A function is called
   * after the embedding is built.
   */
  readonly perLayer?: readonly LayerAttention[] | (() => readonly LayerAttention[]);
  /** Options that scale queries by their positions. */
  readonly temperature?: RopeOptions["temperature"];
  /** Magnitude to which tanh bounds attention scores. */
  readonly softcap?: number;
  /**
   * Factors on the embedding, on residual additions, on attention scores and on values; by default 1, 1, 1 /
   * sqrt(headDim) and 1.
   */
  readonly scales?: {
    readonly embedding?: number;
    readonly residual?: number;
    readonly attention?: number;
    /** Only in layers with norms before the blocks alone. */
    readonly values?: number;
  };
  /** Dimensions of a value head, if they differ from a key head's. */
  readonly valueDim?: number;
  /** Whether the embedding's rows are normed, without weights. */
  readonly normedEmbedding?: boolean;
  /** Epsilon of norms after attention and feed-forward; by default the file's. */
  readonly postNormEpsilon?: number;
  /** The layers' attention; by default with grouped heads. */
  readonly attention?: Attention;
  /** Called with the input rows of each layer, before its norm. */
  readonly beforeLayer?: (x: Value, name: TensorName) => void;
  /** Adds the feed-forward output of normed rows x to `addTo`; by default a dense block. */
  readonly feedForward?: (x: Value, addTo: Value, name: TensorName, layer: number) => void;
  /** Suffix in the tensor names of norms after attention and feed-forward; by default ".weight". */
  readonly postNormSuffix?: string;
  /**
   * Number of times that rows pass through all layers (default 1), and whether the final norm also runs between passes.
   */
  readonly passes?: { readonly count: number; readonly normed: boolean };
}

/** How the layers of a decoder attend. */
export interface Attention {
  /** Returns the attention output of normed rows x: [rows, columns of the output matrix]. */
  attend(x: Value, layer: number, name: TensorName, own: LayerAttention): Value;
  /** Only appends keys and values of normed rows x to a new KV cache. Families that draft have it. */
  keys?(x: Value, layer: number, name: TensorName): void;
}

/**
 * Builds a decoder of Llama's kind: grouped attention and a feed-forward block, each with norms before it,
 * after it or both. Biases are added where the file has them.
 *
 * Layers may differ where that is allowed:
 * - A layer without heads has no attention.
 * - A layer without KV heads only multiplies its rows by the output matrix.
 * - A layer of width 0 has no feed-forward block.
 *
 * Sources: "LLaMA" (arXiv 2302.13971), "Qwen3" (2505.09388).
 */
export function buildDecoder(b: PlanBuilder, h: Hparams, rope: Rope, traits: DecoderTraits): Value {
  let x = embed(b, "token_embd", h.vocabSize, h.embeddingLength, traits.scales?.embedding);
  placeImages(b, x);
  if (traits.learnedPositions) {
    embedPositions(b, x, { positions: { name: "position_embd", count: h.contextLength } });
  }
  if (traits.normedEmbedding) x = rmsNorm(b, x, undefined, h.epsilon);
  const perLayer = typeof traits.perLayer === "function" ? traits.perLayer() : traits.perLayer;
  const attention = traits.attention ?? grouped(b, h, rope, traits, perLayer === undefined);
  const { count, normed } = traits.passes ?? { count: 1, normed: false };
  for (let pass = 0; pass < count; pass++) {
    if (pass > 0 && normed) x = normOf(traits)(b, x, "output_norm", h.epsilon);
    const layers = h.layers.slice(0, traits.layerCount);
    for (const [layer, shape] of layers.entries()) {
      handOut(b, x, layer);
      addLayer(
        b,
        h,
        x,
        traits,
        layer,
        shape,
        (rows, name) => attention.attend(rows, layer, name, perLayer?.[layer] ?? {}),
      );
      deepenImages(b, x, layer);
    }
    handOut(b, x, layers.length);
  }
  if (b.drafts) addDraftLayer(b, x, h, draftBlock(b, h, traits, attention));
  return x;
}

/** Returns the layer that drafts, which sees all tokens. */
function draftBlock(b: PlanBuilder, h: Hparams, traits: DecoderTraits, attention: Attention): DraftBlock {
  const layer = layersBeforeDrafts(b.file, h);
  return {
    keys: (x, name) => attention.keys!(normOf(traits)(b, x, name("attn_norm"), h.epsilon), layer, name),
    layer(x) {
      addLayer(
        b,
        h,
        x,
        traits,
        layer,
        h.layers[layer],
        (rows, name) => attention.attend(rows, layer, name, {}),
      );
    },
  };
}

const normOf = ({ layerNorms }: Traits) => layerNorms ? layerNorm : rmsNorm;

/** Adds the output of a decoder layer to x. */
function addLayer(
  b: PlanBuilder,
  h: Hparams,
  x: Value,
  traits: DecoderTraits,
  layer: number,
  { heads, kvHeads, feedForwardLength }: LayerShape,
  attend: (x: Value, name: TensorName) => Value,
): void {
  const { norms = "before", feedForwardNorm = "ffn_norm", postNormSuffix = ".weight", parallel } = traits;
  const name = (tensor: string) => `blk.${layer}.${tensor}`;
  const norm = (tensor: string) => norms === "after" ? x : normOf(traits)(b, x, name(tensor), h.epsilon);
  const add = (rows: Value, matrix: string, norm: string, factor = 1) => {
    const out = { name: name(matrix), rows: h.embeddingLength };
    if (norms === "before") {
      return void linear(b, rows, [{ ...out, addTo: x, times: factor * (traits.scales?.residual ?? 1) }]);
    }
    const [made] = linear(b, rows, [out]);
    postNorm(b, made, { whole: name(norm) + postNormSuffix }, traits.postNormEpsilon ?? h.epsilon, x);
  };
  traits.beforeLayer?.(x, name);
  const attnIn = heads > 0 ? norm("attn_norm") : undefined;
  // In a parallel layer, the feed-forward norm must read x before attention is added to it.
  const beside = parallel === "normed apart" ? norm(feedForwardNorm) : parallel ? attnIn : undefined;
  if (attnIn) {
    const mixed = kvHeads === 0 && !traits.attention ? attnIn : attend(attnIn, name);
    add(mixed, "attn_output", "post_attention_norm", traits.scales?.values);
  }
  if (feedForwardLength === 0 && !traits.feedForward) return;

  const ffnIn = beside ?? norm(feedForwardNorm);
  if (traits.feedForward) return traits.feedForward(ffnIn, x, name, layer);
  add(feedForward(b, ffnIn, feedForwardLength, traits, name), "ffn_down", "post_ffw_norm");
}

/** Returns the hidden rows of a dense feed-forward block. */
function feedForward(
  b: PlanBuilder,
  x: Value,
  rows: number,
  { activation = "silu", ungated, fusedGate }: Traits,
  name: TensorName,
): Value {
  const up = name("ffn_up");
  return ungated
    ? activated(b, x, up, rows, activation)
    : glu(b, x, fusedGate ? up : name("ffn_gate"), up, rows, activation);
}

/** Returns the output of the default attention: grouped heads. */
function grouped(
  b: PlanBuilder,
  h: Hparams,
  rope: Rope,
  traits: DecoderTraits,
  alike: boolean,
): Attention {
  const { positionlessEvery: every, hasPositions = (layer) => !every || (layer + 1) % every !== 0 } = traits;
  const table = alike && !traits.learnedPositions ? ropeTable(b, rope.angles()) : undefined;
  const headsOf = (layer: number): GroupedHeads => ({
    heads: h.layers[layer].heads,
    kvHeads: h.layers[layer].kvHeads,
    headDim: h.keyLength,
    valueDim: traits.valueDim,
    table: hasPositions(layer) ? table : undefined,
    rotated: h.ropeDimensionCount,
    interleaved: traits.interleavedRope,
    eps: h.epsilon,
    headNorms: traits.headNorms,
    normsLast: traits.normsLast,
    rowNorms: traits.rowNorms,
    headLayerNorms: traits.headLayerNorms,
    scale: traits.scales?.attention,
    fused: traits.fusedHeads,
    sinks: traits.sinks,
    softcap: traits.softcap,
    temperature: traits.temperature,
    outputGate: traits.outputGate,
  });
  return {
    attend: (x, layer, name, own) => groupedAttention(b, x, { ...headsOf(layer), ...own }, name),
    keys: (x, layer, name) => groupedKeys(b, x, headsOf(layer), name),
  };
}
