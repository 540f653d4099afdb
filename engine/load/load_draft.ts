import { prepareBackend } from "../backend/choose.ts";
import { blocksFor } from "../cache/kv_blocks.ts";
import type { LoadOptions } from "./options.ts";
import { isEncoder, wholeTables, withContext } from "../plan/plan.ts";
import { cannotDraft, commonVocabulary } from "./draft_vocabulary.ts";
import { describeModel, type ModelDescription } from "./describe.ts";
import type { MemoryNeeds } from "./memory_error.ts";
import { MAX_ROWS, memoryOf } from "./size.ts";
import { DraftModel } from "../speculation/draft_model.ts";

/** Maximum number of sequences that a draft model follows at once. */
const MOST_PLACES = 16;

/** A draft model whose header was read and checked. */
export interface MeasuredDraft {
  readonly architecture: string;
  readonly memory: MemoryNeeds;
  /** Bytes of weights read per drafted token. */
  readonly tokenBytes: number;
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
  const vocabSize = await commonVocabulary(path, described.tokenizer, drafted.tokenizer);
  const places = Math.min(MOST_PLACES, options.parallel ?? MOST_PLACES);
  const hasStates = plan.states.length > 0;
  const size = {
    kvBlocks: places * blocksFor(contextLength) * plan.kv.windows.length,
    stateSlots: hasStates ? 2 * places : undefined,
    maxRows: MAX_ROWS,
    maxLogitRows: places,
  };
  const { all: weights, token: tokenBytes } = await described.weightBytes();
  return {
    architecture: plan.architecture,
    memory: { ...memoryOf(plan, size), weights },
    tokenBytes,
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
