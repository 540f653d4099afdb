import { buildPlan, hasDraftLayer, readRopeFactors } from "../architectures/registry.ts";
import { EngineError } from "../api/errors.ts";
import { packedBytes, prepareBackend } from "../backend/choose.ts";
import { GgufError, quote } from "../gguf/errors.ts";
import type { GgufFile } from "../gguf/types.ts";
import { openGguf } from "../gguf/reader.ts";
import { blocksFor } from "../cache/kv_blocks.ts";
import type { LoadOptions } from "./options.ts";
import { isEncoder, kvBlockBytes, stateBytes, wholeTables, withContext, withKvType } from "../plan/plan.ts";
import { planScratch } from "../plan/scratch.ts";
import { MAX_ROWS } from "./size.ts";
import { DraftModel } from "../speculation/draft_model.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import type { Tokenizer } from "../tokenizer/types.ts";

/** Maximum number of sequences that a draft model follows at once. */
const MOST_PLACES = 16;
/** How many tokens one vocabulary may have beyond the other: some files pad theirs to a round number. */
const MOST_BEYOND = 1024;

/** A draft model whose header was read and checked. */
export interface MeasuredDraft {
  /** Bytes. */
  readonly memory: {
    readonly weights: number;
    readonly activations: number;
    readonly states: number;
    readonly kv: number;
  };
  load(signal?: AbortSignal): Promise<DraftModel>;
}

/** Options of the model that the drafts are for. */
type DraftedOptions = Pick<LoadOptions, "threads" | "isa" | "backend" | "kvType" | "parallel">;

/**
 * Reads the header of a draft model; `drafted` is the file of the model that it drafts for. Throws EngineError if their
 * vocabularies differ, or if the draft model generates no tokens.
 */
export async function measureDraft(
  path: string,
  drafted: GgufFile,
  options: DraftedOptions & { readonly contextLength: number },
): Promise<MeasuredDraft> {
  const file = await openGguf(path);
  const built = buildPlan(file, await readRopeFactors(file));
  if (isEncoder(built)) throw cannotDraft(path, "the model generates no text");
  const contextLength = Math.min(built.contextLength, options.contextLength);
  const plan = withContext(withKvType(built, options.kvType ?? "f16"), contextLength);
  const vocabSize = commonVocabulary(path, createTokenizer(file.metadata), createTokenizer(drafted.metadata));
  const places = Math.min(MOST_PLACES, options.parallel ?? MOST_PLACES);
  const hasStates = plan.states.length > 0;
  const size = {
    kvBlocks: places * blocksFor(contextLength) * plan.kv.windows.length,
    stateSlots: hasStates ? 2 * places : undefined,
    maxRows: MAX_ROWS,
    maxLogitRows: places,
  };
  const weights = await packedBytes(plan, options);
  return {
    memory: {
      weights: weights.reduce((sum, bytes) => sum + bytes, 0),
      activations: planScratch(plan, size.maxRows, size.maxLogitRows).arenaBytes,
      states: (size.stateSlots ?? 0) * stateBytes(plan),
      kv: size.kvBlocks * kvBlockBytes(plan),
    },
    load: async (signal) => {
      const progress = () => signal?.throwIfAborted();
      // Nothing drafts on a GPU.
      const kernels = {
        ...options,
        backend: options.backend === "auto" ? undefined : options.backend,
        progress,
      };
      const { backend } = await prepareBackend(file, plan, size, kernels);
      const tables = (blocks: Int32Array) => wholeTables(plan, blocks);
      return new DraftModel({
        backend,
        vocabSize,
        contextLength,
        places,
        maxRows: MAX_ROWS,
        hasStates,
        tables,
      });
    },
  };
}

/** Returns how many tokens the vocabularies share. Throws EngineError if a shared token differs. */
function commonVocabulary(path: string, drafting: Tokenizer, drafted: Tokenizer): number {
  const common = Math.min(drafting.vocabSize, drafted.vocabSize);
  if (Math.max(drafting.vocabSize, drafted.vocabSize) - common > MOST_BEYOND) {
    throw cannotDraft(
      path,
      `its vocabulary has ${drafting.vocabSize} tokens, the model's has ${drafted.vocabSize}`,
    );
  }
  for (let token = 0; token < common; token++) {
    if (isSame(token, drafting, drafted)) continue;
    const [its, ours] = [drafting, drafted].map((tokenizer) => spelled(token, tokenizer));
    throw cannotDraft(path, `token ${token} is ${its} in its vocabulary, and ${ours} in the model's`);
  }
  return common;
}

function cannotDraft(path: string, reason: string): EngineError {
  const advice = "name a smaller model of the same family and version";
  return new EngineError("invalid_request", [
    `Cannot draft with ${path}: ${reason}; ${advice} (`,
    { draft: undefined },
    ")",
  ]);
}

function isSame(token: number, one: Tokenizer, other: Tokenizer): boolean {
  const [its, ours] = [one.bytes(token), other.bytes(token)];
  return one.isControl(token) === other.isControl(token) && its.length === ours.length &&
    its.every((byte, i) => byte === ours[i]);
}

function spelled(token: number, tokenizer: Tokenizer): string {
  return JSON.stringify(tokenizer.decode([token], { continuation: true, special: true }));
}

/** Whether the model's own draft layer is loaded. Throws GgufError if the options ask for one and the file has none. */
export function wantsDraftLayer(
  file: GgufFile,
  { backend = "cpu", speculate = "auto", draft }: Pick<LoadOptions, "backend" | "speculate" | "draft">,
): boolean {
  if (draft !== undefined || backend === "webgpu") return false;
  if (speculate === "auto") return backend !== "auto" && hasDraftLayer(file);
  if (speculate !== "mtp") return false;
  if (hasDraftLayer(file)) return true;
  const key = quote(`${file.metadata.getString("general.architecture")}.nextn_predict_layers`);
  const detail = [
    "the file has no layer that drafts tokens, which ",
    { speculate },
    " asks for: use ",
    { speculate: "auto" },
  ];
  throw new GgufError("GGUF_HPARAM", detail, { field: `key ${key}` });
}
