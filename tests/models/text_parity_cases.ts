/** Models and texts of the parity test for embeddings and rankings, with the answers that tools/parity/texts.ts generated. */
import type { Engine, PoolingKind } from "../../engine/mod.ts";
import type { SynthOptions } from "../../testing/synth/synth.ts";
import { RANK_TEMPLATE } from "../../testing/text_model.ts";

/** A model of the parity test, and its task. */
export interface TextModel {
  /** The model's key in the table of exact answers. */
  readonly name: string;
  readonly kind: PoolingKind;
  readonly options: SynthOptions;
}

const CODES = { mean: 1, cls: 2, last: 3, rank: 4 } as const;

/** Labels of the ranking head: decoders have two, yes and no. */
const KINDS = {
  qwen3: { kinds: ["mean", "cls", "last", "rank"], labels: 2 },
  bert: { kinds: ["mean", "cls", "rank"], labels: 1 },
  "nomic-bert": { kinds: ["mean"], labels: 1 },
  "nomic-bert-moe": { kinds: ["mean"], labels: 1 },
  "modern-bert": { kinds: ["cls", "rank"], labels: 1 },
  "neo-bert": { kinds: ["cls", "rank"], labels: 1 },
  "jina-bert-v2": { kinds: ["mean"], labels: 1 },
  "jina-bert-v3": { kinds: ["mean", "cls"], labels: 1 },
  eurobert: { kinds: ["mean", "last"], labels: 1 },
  "llama-embed": { kinds: ["mean"], labels: 1 },
} as const;

/**
 * A score is one number, so chance decides which of two roundings is nearer. Over this many seeds, chance averages
 * out.
 */
const RANK_SEEDS = 24;

export const TEXT_MODELS: readonly TextModel[] = (["F32", "Q8_0"] as const).flatMap((type) =>
  (Object.keys(KINDS) as (keyof typeof KINDS)[]).flatMap((architecture) =>
    KINDS[architecture].kinds.flatMap((kind) => {
      const seeds = architecture === "qwen3" && type === "Q8_0" && kind === "rank" ? RANK_SEEDS : 1;
      return Array.from({ length: seeds }, (_, i) => textModel(architecture, type, kind, i + 1));
    })
  )
);

function textModel(
  architecture: keyof typeof KINDS,
  type: "F32" | "Q8_0",
  kind: keyof typeof CODES,
  seed: number,
): TextModel {
  const { labels } = KINDS[architecture];
  const rank = kind === "rank" ? { labels, template: RANK_TEMPLATE } : { addEos: kind === "last" };
  const name = `${architecture}-${type}-${kind}`;
  return {
    name: seed === 1 ? name : `${name}-${seed}`,
    kind,
    options: { architecture, types: [type], seed, texts: { pooling: CODES[kind], ...rank } },
  };
}

export const TEXTS = [
  "Hello world",
  "a",
  "Zażółć gęślą jaźń, and the quick brown fox jumps over the lazy dog",
  "a hare in the grass; ".repeat(20),
];
export const PAIRS = { query: "what lives in the snow?", documents: TEXTS };

/** The input tokens of a model's row, for each text. */
export function tokensOf({ kind }: TextModel, engine: Engine): number[][] {
  if (kind === "rank") return PAIRS.documents.map((document) => engine.encodePair(PAIRS.query, document));
  return TEXTS.map((text) => engine.encodePrompt(text));
}

/** Per model the file's digest, and for each text a unit vector or a score, exact and llama.cpp's. */
export interface TextTable {
  readonly [model: string]: {
    /** First 16 hexadecimal digits of the file's SHA-256. */
    readonly sha256: string;
    /** Vectors as base64 of f32; scores as numbers. */
    readonly exact: readonly (string | number)[];
    readonly llamaCpp: readonly (string | number)[];
  };
}

export const TEXT_TABLE_URL = new URL("text_parity_expected.json", import.meta.url);
