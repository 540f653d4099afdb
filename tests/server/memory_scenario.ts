import { readPlan } from "../../engine/architectures/registry.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import { loadEngine } from "../../engine/load/load.ts";
import { isEncoder, kvBytesPerToken, withKvType } from "../../engine/plan/plan.ts";
import { type Engine, type KvType } from "../../engine/mod.ts";
import { Random } from "../../testing/random.ts";

/**
 * Compares the resident memory of a running model with its file, KV cache and states (`deno task memory FILE`). The
 * suite measures small models (memory_test.ts).
 */

/** Allowed memory: a multiple of the file, plus bytes for everything except file and cache. */
const FILE_SHARE = 1.1;
const REST = 64e6;
const ANSWER = 8;

/** Sampling interval in milliseconds. */
const LOOK = 10;

export interface MemoryOptions {
  readonly model: string;
  /** Number of tokens of each prompt. */
  readonly tokens: number;
  readonly sequences: number;
  readonly kvType?: KvType;
}

/** Memory of a model in bytes. */
export interface MemoryUse {
  /** Number of tokens of each prompt. */
  readonly tokens: number;
  readonly file: number;
  /** Peak use of the KV cache, and the use if every layer kept all tokens. */
  readonly kv: number;
  readonly kvOfAll: number;
  readonly states: number;
  /** Resident memory before loading, after loading, and its peak. */
  readonly resident: { readonly before: number; readonly loaded: number; readonly most: number };
  /** The model's memory, and its limit. */
  readonly taken: number;
  readonly allowed: number;
}

/** Runs the prompts and watches the process. */
export async function measureMemory(options: MemoryOptions): Promise<MemoryUse> {
  const { model, sequences, kvType = "f16" } = options;
  const before = Deno.memoryUsage().rss;
  const file = await openGguf(model);
  const plan = withKvType(await readPlan(file), kvType);
  const contextLength = Math.min(options.tokens + ANSWER, plan.contextLength);
  const tokens = contextLength - ANSWER;
  const { engine, memory } = await loadEngine({ model, kvType, contextLength, parallel: sequences });
  const loaded = Deno.memoryUsage().rss;
  const most = { resident: loaded, blocks: 0 };
  const timer = setInterval(() => {
    most.resident = Math.max(most.resident, Deno.memoryUsage().rss);
    most.blocks = Math.max(most.blocks, engine.stats().kvBlocksUsed);
  }, LOOK);
  try {
    const prompts = Array.from({ length: sequences }, (_, i) => prompt(tokens, i, plan.vocabSize));
    if (isEncoder(plan)) await engine.embed({ inputs: prompts });
    else await Promise.all(prompts.map((tokens) => answer(engine, tokens)));
    const { kvBlocksTotal } = engine.stats();
    const kv = kvBlocksTotal === 0 ? 0 : most.blocks * memory.kv / kvBlocksTotal;
    const allowed = FILE_SHARE * file.fileSize + kv + memory.states + REST;
    return {
      tokens,
      file: file.fileSize,
      kv,
      kvOfAll: sequences * contextLength * kvBytesPerToken(plan),
      states: memory.states,
      resident: { before, loaded, most: most.resident },
      taken: most.resident - before,
      allowed,
    };
  } finally {
    clearInterval(timer);
    await engine.close();
  }
}

/** Returns random tokens: no two prompts have a common beginning. */
export function prompt(length: number, seed: number, vocabulary: number): number[] {
  const random = new Random(seed);
  return Array.from({ length }, () => random.below(vocabulary));
}

async function answer(engine: Engine, prompt: readonly number[]): Promise<void> {
  const sampling = { temperature: 0 };
  for await (const event of engine.submit({ prompt, maxTokens: ANSWER, ignoreEos: true, sampling })) {
    if (event.type === "finish" && event.reason !== "length") {
      throw new Error(`An answer ended: ${event.reason}`);
    }
  }
}
