import { basename } from "@std/path";
import type { StepOutput } from "../engine/backend/backend.ts";
import {
  type AnyBackend,
  defaultBackend,
  prepareBackend,
  type PrepareOptions,
} from "../engine/backend/choose.ts";
import { describeModel } from "../engine/load/describe.ts";
import { MAX_ROWS } from "../engine/load/size.ts";
import { isEncoder, type Plan, withContext } from "../engine/plan/plan.ts";
import type { Tokenizer } from "../engine/tokenizer/types.ts";
import type { LogitsRequest } from "../engine/backend/backend.ts";
import { checkMemory } from "./memory.ts";
import type { BenchOptions } from "./model.ts";
import { blocksOf, Steps } from "./steps.ts";

export interface ChunkOptions
  extends Pick<BenchOptions, "model" | "kvType" | "activations" | "warn" | "freeBytes">, PrepareOptions {
  readonly text: string;
  /** Number of tokens in a chunk. */
  readonly chunkTokens: number;
  /** Maximum number of chunks; by default the whole text. */
  readonly chunks?: number;
  /** Ends the run early. The result then covers the complete chunks. */
  readonly signal?: AbortSignal;
}

/** Maximum logits of one step, to bound its memory: 32 MB of floats. A step has at least one row with logits. */
const STEP_LOGITS = 2 ** 23;
const MAX_LOGIT_ROWS = 256;

/** Names of the settings that change the memory, for messages. */
const SETTINGS = { all: "--ctx", less: "fewer tokens (--ctx)" };

/**
 * Returns the whole chunks of the text. If the model begins texts with BOS, it replaces the first token of each chunk.
 */
export function chunksOf(
  tokenizer: Pick<Tokenizer, "bosToken" | "encode">,
  { text, chunkTokens, chunks = Infinity }: Pick<ChunkOptions, "text" | "chunkTokens" | "chunks">,
): Int32Array[] {
  // llama.cpp also drops one line end at the end of the text.
  const tokens = tokenizer.encode(text.replace(/\n$/, ""), { addSpecial: true });
  const count = Math.floor(tokens.length / chunkTokens);
  if (count === 0) {
    throw new Error(`The text has ${tokens.length} tokens, fewer than a chunk of ${chunkTokens} (--ctx)`);
  }
  const [first] = tokenizer.encode("", { addSpecial: true });
  return Array.from({ length: Math.min(chunks, count) }, (_, i) => {
    const chunk = Int32Array.from(tokens.slice(i * chunkTokens, (i + 1) * chunkTokens));
    if (first !== undefined && first === tokenizer.bosToken) chunk[0] = first;
    return chunk;
  });
}

/** A loaded model that computes chunks of text, without a scheduler and a prefix cache. */
export class ChunkModel {
  readonly #steps: Steps;

  private constructor(
    readonly name: string,
    readonly backend: AnyBackend,
    readonly choice: string,
    readonly plan: Plan,
    readonly tokenizer: Tokenizer,
    readonly logitRows: number,
    blocks: number,
  ) {
    this.#steps = new Steps(backend, plan, blocks);
  }

  /**
   * Loads a model. `change` may add ops to its plan. Throws the errors of loading a model, and Error for an encoder.
   */
  static async open(given: ChunkOptions, change: (plan: Plan) => Plan = (plan) => plan): Promise<ChunkModel> {
    const { model, chunkTokens } = given;
    const options = { ...given, backend: given.backend ?? defaultBackend(given.warn) };
    const described = await describeModel({ ...options, speculate: "off" });
    const name = basename(model).replace(/\.gguf$/, "");
    const built = await described.plan();
    if (isEncoder(built)) throw new Error(`${name} gives vectors for texts and predicts no tokens`);
    if (chunkTokens > built.contextLength) {
      throw new Error(
        `Cannot compute chunks of ${chunkTokens} tokens (--ctx): the model's context holds ${built.contextLength}`,
      );
    }
    const plan = change(withContext(built, chunkTokens));
    const blocks = blocksOf(chunkTokens);
    const size = {
      kvBlocks: blocks * plan.kv.windows.length,
      stateSlots: plan.states.length > 0 ? 1 : 0,
      maxRows: MAX_ROWS,
      maxLogitRows: Math.max(1, Math.min(MAX_LOGIT_ROWS, Math.floor(STEP_LOGITS / plan.vocabSize))),
    };
    checkMemory(plan, size, { ...options, weights: (await described.weightBytes()).all }, SETTINGS);
    const { backend, choice } = await prepareBackend(described.file, plan, size, options);
    return new ChunkModel(name, backend, choice, plan, described.tokenizer, size.maxLogitRows, blocks);
  }

  /** Computes tokens `from` to `to` of a chunk. Returns the requested logits. */
  step(chunk: Int32Array, from: number, to: number, logits: readonly LogitsRequest[]): Promise<StepOutput> {
    return this.backend.step(this.#steps.textStep(chunk, from, to, logits));
  }

  close(): void {
    this.backend.close();
  }
}
