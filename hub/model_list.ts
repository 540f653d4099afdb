import { z } from "zod";
import { PullError } from "./errors.ts";
import { quote } from "./names.ts";

/** A model that the list gives a short name. */
export interface ListedModel {
  /** Source of the model in the form that `pull` accepts. */
  readonly source: string;
  /** Hash of the file in hex, if the list's author gave one. */
  readonly sha256?: string;
  readonly about?: string;
}

export type ModelList = Readonly<Record<string, ListedModel>>;

/** Models that compy runs, from repositories of their makers or of llama.cpp's authors. */
export const SHIPPED_LIST: ModelList = {
  "qwen3-0.6b": { source: "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0", about: "Qwen3 0.6B, 8 bits" },
  "qwen3-4b": { source: "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", about: "Qwen3 4B, 4 bits" },
  "qwen3-8b": { source: "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M", about: "Qwen3 8B, 4 bits" },
  "lfm2-1.2b": { source: "hf:LiquidAI/LFM2-1.2B-GGUF:Q4_K_M", about: "LFM2 1.2B, 4 bits" },
  "gemma3-1b": { source: "hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", about: "Gemma 3 1B, 4 bits" },
  "smollm3-3b": { source: "hf:ggml-org/SmolLM3-3B-GGUF:Q4_K_M", about: "SmolLM3 3B, 4 bits" },
  "granite4-h-tiny": {
    source: "hf:ibm-granite/granite-4.0-h-tiny-GGUF:Q4_K_M",
    about: "Granite 4.0 H Tiny, 7B with 1B active, 4 bits",
  },
  "gpt-oss-20b": { source: "hf:ggml-org/gpt-oss-20b-GGUF", about: "gpt-oss 20B, MXFP4" },
  "embeddinggemma-300m": {
    source: "hf:ggml-org/embeddinggemma-300M-GGUF:Q8_0",
    about: "EmbeddingGemma 300M, 8 bits, for embeddings",
  },
};

const SHA256 = /^[0-9a-f]{64}$/;

const LIST = z.record(
  z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/),
  z.union([
    z.string().min(1),
    z.strictObject({
      source: z.string().min(1),
      sha256: z.string().toLowerCase().regex(SHA256).optional(),
      about: z.string().max(200).optional(),
    }),
  ]),
);

/** Parses a user's list: `{"NAME": "SOURCE" or {"source", "sha256", "about"}, …}`. Throws PullError. */
export function parseModelList(json: string, path: string): ModelList {
  const refuse = (why: string): never => {
    throw new PullError("PULL_SOURCE", `Cannot read the list of models in ${quote(path)}: ${why}`);
  };
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    refuse(`it must be JSON (${(error as Error).message})`);
  }
  const { success, data, error } = LIST.safeParse(value);
  if (success) {
    return Object.fromEntries(
      Object.entries(data).map((
        [name, entry],
      ) => [name, typeof entry === "string" ? { source: entry } : entry]),
    );
  }
  const at = error.issues[0].path.join(".");
  return refuse(
    `${at === "" ? "it" : quote(at)} must be {"NAME": "SOURCE"} or ` +
      `{"NAME": {"source": "SOURCE", "sha256": "64 hexadecimal digits", "about": "TEXT"}}`,
  );
}

/** Returns a hash from `--sha256` in lower case. Throws PullError. */
export function parseSha256(text: string): string {
  const plain = text.toLowerCase();
  if (SHA256.test(plain)) return plain;
  throw new PullError("PULL_SOURCE", `Invalid SHA-256 ${quote(text)}: must be 64 hexadecimal digits`);
}
