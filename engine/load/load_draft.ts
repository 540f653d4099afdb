import { EngineError } from "../api/errors.ts";
import { prepareBackend } from "../backend/choose.ts";
import { blocksFor } from "../cache/kv_blocks.ts";
import type { LoadOptions } from "./options.ts";
import { isEncoder, wholeTables, withContext } from "../plan/plan.ts";
import { describeModel, type ModelDescription } from "./describe.ts";
import type { MemoryNeeds } from "./memory_error.ts";
import { MAX_ROWS, memoryOf } from "./size.ts";
import { DraftModel } from "../speculation/draft_model.ts";
import type { Tokenizer } from "../tokenizer/types.ts";

/** Maximum number of sequences that a draft model follows at once. */
const MOST_PLACES = 16;
/** Maximum number of tokens by which one vocabulary may exceed the other: some files pad theirs to a round number. */
const MOST_BEYOND = 1024;

/** A draft model whose header was read and checked. */
export interface MeasuredDraft {
  readonly memory: MemoryNeeds;
  load(signal?: AbortSignal): Promise<DraftModel>;
}

/** Options of the target model for which drafts are made. */
type DraftedOptions = Pick<LoadOptions, "threads" | "processors" | "isa" | "backend" | "kvType" | "parallel">;

/**
 * Reads the header of a draft model. `drafted` is the target model. Throws EngineError if the vocabularies differ, or
 * if the draft model generates no tokens.
 */
export async function measureDraft(
  path: string,
  drafted: ModelDescription,
  options: DraftedOptions & { readonly contextLength: number },
): Promise<MeasuredDraft> {
  const { isa, backend, kvType } = options;
  const described = await describeModel({ model: path, isa, backend, kvType, speculate: "off" });
  const built = await described.plan();
  if (isEncoder(built)) throw cannotDraft(path, "the model generates no text");
  const contextLength = Math.min(built.contextLength, options.contextLength);
  const plan = withContext(built, contextLength);
  const vocabSize = commonVocabulary(path, described.tokenizer, drafted.tokenizer);
  const places = Math.min(MOST_PLACES, options.parallel ?? MOST_PLACES);
  const hasStates = plan.states.length > 0;
  const size = {
    kvBlocks: places * blocksFor(contextLength) * plan.kv.windows.length,
    stateSlots: hasStates ? 2 * places : undefined,
    maxRows: MAX_ROWS,
    maxLogitRows: places,
  };
  return {
    memory: { ...memoryOf(plan, size), weights: (await described.weightBytes()).all },
    load: async (signal) => {
      const progress = () => signal?.throwIfAborted();
      // A GPU computes no drafts.
      const kernels = { ...options, backend: backend === "auto" ? undefined : backend, progress };
      const { backend: drafting } = await prepareBackend(described.file, plan, size, kernels);
      const tables = (blocks: Int32Array) => wholeTables(plan, blocks);
      return new DraftModel({
        backend: drafting,
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

/** Returns the number of tokens that both vocabularies share. Throws EngineError if a shared token differs. */
function commonVocabulary(path: string, drafting: Tokenizer, drafted: Tokenizer): number {
  const common = Math.min(drafting.vocabSize, drafted.vocabSize);
  if (Math.max(drafting.vocabSize, drafted.vocabSize) - common > MOST_BEYOND) {
    throw cannotDraft(
      path,
      `its vocabulary has ${drafting.vocabSize} tokens, the model's has ${drafted.vocabSize}`,
    );
  }
  for (let token = 0; token < common; token++) {
    if (isSameToken(token, drafting, drafted)) continue;
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

/** Returns whether a token has the same bytes and the same kind in both vocabularies. */
export function isSameToken(token: number, one: Tokenizer, other: Tokenizer): boolean {
  const [its, ours] = [one.bytes(token), other.bytes(token)];
  return one.isControl(token) === other.isControl(token) && its.length === ours.length &&
    its.every((byte, i) => byte === ours[i]);
}

function spelled(token: number, tokenizer: Tokenizer): string {
  return JSON.stringify(tokenizer.decode([token], { continuation: true, special: true }));
}
