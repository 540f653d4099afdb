/** Requests of every kind on a KV cache that holds only a few. Each answer must equal the answer alone. */
import { assertEquals } from "@std/assert";
import type { Constraint, Engine, GenerateRequest, SamplingParams, TokenEvent } from "../../engine/mod.ts";
import { Random } from "../../testing/random.ts";

export interface Crowd {
  readonly requests: number;
  /** Number of concurrent requests; more than can run. */
  readonly company: number;
  readonly seed: number;
}

/** The shared beginning of half of the prompts. */
const SHARED = 64;
/** Answer lengths of requests with a limit. */
const SHORTEST = 70;
const LONGEST = 150;

/** Returns request `id`, which has at most 256 tokens. */
export function requestOf(id: number, { seed }: Crowd, vocabSize: number): GenerateRequest {
  const tokens = (count: number, random: Random) =>
    Array.from({ length: count }, () => random.below(Math.min(256, vocabSize)));
  const random = new Random(seed * 1_000_003 + id);
  const shared = random.below(2) * random.below(SHARED + 1);
  const limited = random.below(3) > 0;
  const free: GenerateRequest = {
    prompt: [...tokens(shared, new Random(seed)), ...tokens(1 + random.below(40), random)],
    maxTokens: limited ? SHORTEST + random.below(LONGEST - SHORTEST + 1) : 1 + random.below(20),
    ignoreEos: limited,
    sampling: samplingOf(random),
    stop: random.below(3) === 0 ? [String.fromCharCode(97 + random.below(26)) + "q", "~~"] : undefined,
    logprobs: random.below(4) === 0 ? random.below(4) : undefined,
    promptLogprobs: random.below(6) === 0,
    priority: random.below(2) === 0 ? "batch" : "interactive",
    cacheSalt: random.below(4) === 0 ? "salt" : undefined,
  };
  // Constraints use letters, which every byte vocabulary has.
  const constraint = random.below(3) === 0 && vocabSize >= 256 ? formOf(random) : undefined;
  const thinking = random.below(4) === 0
    ? {
      open: random.below(2) === 0,
      anywhere: true,
      begin: tokens(1, random),
      end: [32, 65],
      budget: random.below(40),
    }
    : undefined;
  const markers = random.below(3) === 0 ? new Set(tokens(20, random)) : undefined;
  return { ...free, constraint, thinking, markers };
}

/** Fixed texts with free characters in between. */
function formOf(random: Random): Constraint {
  const words = () =>
    Array.from({ length: random.below(12) }, () => ["some", "given", "words"][random.below(3)]);
  const parts = () => [words().join(" "), ".".repeat(1 + random.below(12))];
  const pattern = () => Array.from({ length: 2 + random.below(6) }, parts).flat().join("");
  return { kind: "regex", pattern: random.below(2) === 0 ? pattern() : `${pattern()}|${pattern()}` };
}

function samplingOf(random: Random): Partial<SamplingParams> {
  const seed = random.below(1000);
  return [
    { temperature: 0 },
    { seed },
    { seed, topK: 20, topP: 0.9, temperature: 1.3 },
    { seed, frequencyPenalty: 0.5, presencePenalty: 0.2, repetitionPenalty: 1.1 },
    { temperature: 0, repetitionPenalty: 1.2, logitBias: new Map([[65, 3]]) },
  ][random.below(5)];
}

/** The whole answer, without times, progress and cache-dependent figures. */
async function answer(engine: Engine, request: GenerateRequest): Promise<string> {
  const told: unknown[] = [];
  let processed = 0;
  for await (const event of engine.submit(request)) {
    if (event.type === "progress") processed = later(event, processed);
    else if (event.type === "finish") {
      const { promptTokens, completionTokens } = event.usage;
      told.push([event.reason, event.text, promptTokens, completionTokens]);
    } else told.push(event);
  }
  return JSON.stringify(told);
}

function later({ processed, total }: TokenEvent & { type: "progress" }, before: number): number {
  if (processed <= before || processed > total) throw new Error(`Progress from ${before} to ${processed}`);
  return processed;
}

/**
 * Asks each request alone on `alone`, then all concurrently on `crowded`, which may be the same engine. Throws at the
 * first different answer, or if a resource is not freed. Returns the number of preemptions.
 */
export async function compareCrowd(alone: Engine, crowded: Engine, crowd: Crowd): Promise<number> {
  const { requests, company } = crowd;
  const request = (id: number) => requestOf(id, crowd, alone.model.vocabSize);
  const before = crowded.stats().preemptions;
  const wanted: string[] = [];
  for (let id = 0; id < requests; id++) {
    wanted.push(await answer(alone, { ...request(id), cacheSalt: `alone ${id}` }));
  }
  assertEquals(alone.stats().preemptions, before, "one that runs alone was preempted");
  let next = 0;
  const ask = async () => {
    while (next < requests) {
      const id = next++;
      assertEquals(await answer(crowded, request(id)), wanted[id], `request ${id}`);
    }
  };
  await Promise.all(Array.from({ length: company }, ask));
  const { running, waiting, kvBlocksUsed, preemptions } = crowded.stats();
  assertEquals({ running, waiting, kvBlocksUsed }, { running: 0, waiting: 0, kvBlocksUsed: 0 });
  return preemptions - before;
}
