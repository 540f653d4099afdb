import { buildPlan } from "../../engine/architectures/registry.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { createGrammars } from "../../engine/grammar/grammars.ts";
import { blocksOfSequence } from "../../engine/cache/kv_blocks.ts";
import type { EngineLimits } from "../../engine/schedule/limits.ts";
import type { Speculation } from "../../engine/speculation/speculation.ts";
import { engineOver, FakeBackend, startEngine } from "../../testing/engine.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { type Engine, type KvType } from "../../engine/mod.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { HYBRID_LAYERS, mixedFile, mixedPlan, mixedPlanOf } from "../../testing/mixed_model.ts";
import { askedOf, type Compared, compareDrafts, formAskedOf } from "./speculation.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";

/**
 * Drafts must not change answers, and must save time (`deno task speculate`). Stops at the first answer that differs from the one without drafts.
 */

const CONTEXT = 256;
const PARALLEL = 8;

/** Number of concurrent requests; some of them wait. */
const COMPANY = 2 * PARALLEL;

/** Probability that a draft token stays correct. */
const RIGHT = 0.85;

export interface Model {
  readonly name: string;
  readonly limits?: Partial<EngineLimits>;
  /** The architecture that the kernels compute. If it is missing, a stand-in answers. */
  readonly architecture?: Architecture | "mixed";
  readonly kvType?: KvType;
  /** Most answers have schemas or grammars, over the file's own vocabulary. */
  readonly forms?: boolean;
}

export const STAND_INS: readonly Model[] = [
  { name: "a dense model", limits: {} },
  { name: "layers with windows", limits: { kvWindows: [40, 3, 100], maxRows: 40 } },
  { name: "a hybrid", limits: { stateSlots: 16, draftSlots: 3 } },
];

export const KERNEL_MODELS: readonly Model[] = [
  { name: "llama", architecture: "llama" },
  { name: "qwen35", architecture: "qwen35", limits: { stateSlots: 16, draftSlots: 3 } },
  { name: "qwen3moe", architecture: "qwen3moe" },
  {
    name: "windows, shared caches and states",
    architecture: "mixed",
    limits: { stateSlots: 16, draftSlots: 3 },
  },
  { name: "llama, in schemas and grammars", architecture: "llama", forms: true },
  {
    name: "qwen35, in schemas and grammars",
    architecture: "qwen35",
    limits: { stateSlots: 16, draftSlots: 3 },
    forms: true,
  },
];

/** Compares a model's answers with and without drafts, on a KV cache that holds only a few. */
export async function comparedOn(
  model: Model,
  { requests, seed }: { requests: number; seed: number },
): Promise<Compared> {
  const opened = await openerOf(model);
  const plain = await opened(4, undefined);
  try {
    const ask = model.forms ? formAskedOf : askedOf;
    const asked = Array.from({ length: requests }, (_, id) => ask(id, seed, plain.model.vocabSize));
    const open = (speculation: Speculation) => opened(2, speculation);
    return await compareDrafts(plain, open, asked, { company: COMPANY, right: RIGHT });
  } finally {
    await plain.close();
  }
}

type Opener = (contexts: number, speculation: Speculation | undefined) => Engine | Promise<Engine>;

/** Opens engines of the model, with KV blocks for this many contexts. */
async function openerOf({ limits = {}, architecture, kvType, forms }: Model): Promise<Opener> {
  const { maxRows = 64 } = limits;
  const sizes = { maxRows, maxLogitRows: 48, parallel: PARALLEL, queue: COMPANY, ...limits };
  const room = (contexts: number, kvWindows: readonly number[] = []) => ({
    ...sizes,
    kvWindows,
    kvBlocks: contexts * blocksOfSequence({ windows: kvWindows, maxRows }, CONTEXT),
  });
  if (architecture === undefined) {
    return (contexts, speculation) => {
      const all = room(contexts, limits.kvWindows);
      return startEngine(all, CONTEXT, FakeBackend, undefined, undefined, speculation).engine;
    };
  }
  const mixed = architecture === "mixed";
  const bytes = mixed
    ? mixedFile(HYBRID_LAYERS).bytes
    : synthesize({ architecture, seed: 3, types: ["Q8_0"], layers: 4 });
  const plan = mixed ? await mixedPlanOf(HYBRID_LAYERS) : buildPlan(parseGguf(bytes));
  const tokenizer = forms ? createTokenizer(parseGguf(bytes).metadata) : undefined;
  return async (contexts, speculation) => {
    const all = room(contexts, plan.kv.windows.slice(1));
    const build = mixed ? mixedPlan(HYBRID_LAYERS) : (file: GgufFile) => buildPlan(file);
    const { backend } = await KernelModel.loadAs(build, bytes, all, { kvType, threads: 1 });
    const grammars = tokenizer && createGrammars(tokenizer);
    const over = [
      backend,
      all,
      CONTEXT,
      plan.vocabSize,
      grammars,
      undefined,
      undefined,
      speculation,
    ] as const;
    return engineOver(...over, tokenizer);
  };
}
