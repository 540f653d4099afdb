/** Requests of every kind, answered with and without drafts; the bytes must be equal. */
import { assertEquals } from "@std/assert";
import { randomFrom } from "../../engine/grammar/testing.ts";
import type { Drafter } from "../../engine/speculation/drafter.ts";
import { LookupDrafter } from "../../engine/speculation/lookup.ts";
import { Speculation } from "../../engine/speculation/speculation.ts";
import { FreeRows, KnownAnswers } from "../../engine/speculation/testing.ts";
import {
  type Constraint,
  type Engine,
  EngineError,
  type GenerateRequest,
  type SamplingParams,
  type TokenEvent,
} from "../../engine/mod.ts";
import { randomSchema, SCHEMAS } from "../kernels/constraint_schemas.ts";
import { requestOf as crowdRequest } from "./preemption.ts";
import { Random } from "../../testing/random.ts";

/** A request, and the number of tokens after which its reader disconnects. */
export interface Asked {
  readonly request: GenerateRequest;
  readonly leavesAfter: number;
}

/**
 * Request `id`: a request of the preemption campaign with every kind of sampling. Some readers disconnect, and some
 * requests repeat.
 */
export function askedOf(id: number, seed: number, vocabSize: number, texts: readonly number[][] = []): Asked {
  const random = new Random(seed * 7_368_787 + (id & ~1)); // consecutive pairs may differ only in the seed
  const request = crowdRequest(id & ~1, { requests: 0, company: 0, seed }, vocabSize);
  const text = texts.length > 0 && random.below(2) === 0 ? texts[random.below(texts.length)] : undefined;
  const sampling = random.below(3) === 0 ? request.sampling : samplingOf(random, vocabSize, id);
  return {
    request: {
      ...request,
      prompt: text ?? request.prompt,
      sampling,
      logprobs: random.below(4) === 0 ? random.below(6) : request.logprobs,
    },
    leavesAfter: random.below(5) === 0 ? random.below(60) : Infinity,
  };
}

const PATTERNS = [
  "(given words|and others|[a-f]){4,30}",
  "[0-9]{3}-[0-9]{2}, and a long given text(, or another)*",
  "(x|y)+ and so on\\.",
];
const FORMS: readonly Constraint[] = [
  ...PATTERNS.map((pattern): Constraint => ({ kind: "regex", pattern })),
  { kind: "gbnf", grammar: 'root ::= item ("," item)*\nitem ::= [0-9]{1,3} | "none of them"' },
  { kind: "lark", grammar: 'start: "a" b+\nb: "b" | "cde fgh"' },
];
const STOPS = ['"', ",", "1", "}", "given", "e t"];

/** Returns request `id` as `askedOf` does, but most answers have a schema or grammar. */
export function formAskedOf(id: number, seed: number, vocabSize: number): Asked {
  const { request, leavesAfter } = askedOf(id, seed, vocabSize);
  const random = randomFrom(seed * 7_368_787 + (id & ~1));
  const oneOf = <T>(values: readonly T[]) => values[Math.floor(random() * values.length)];
  const schema = random() < 0.5 ? oneOf(SCHEMAS) : randomSchema(random);
  const constraint = random() < 0.7 ? { kind: "json_schema" as const, schema } : oneOf(FORMS);
  const stop = random() < 0.2 ? [oneOf(STOPS), oneOf(STOPS)] : request.stop;
  return { request: { ...request, stop, constraint: random() < 0.9 ? constraint : undefined }, leavesAfter };
}

function samplingOf(random: Random, vocabSize: number, id: number): Partial<SamplingParams> {
  const sometimes = (share: number, params: Partial<SamplingParams>) => random.unit() < share ? params : {};
  const token = () => random.below(vocabSize);
  return {
    temperature: 1.5 * random.unit(),
    seed: id,
    ...sometimes(0.3, { topK: 1 + random.below(60) }),
    ...sometimes(0.3, { topP: 0.4 + 0.6 * random.unit() }),
    ...sometimes(0.2, { minP: 0.2 * random.unit() }),
    ...sometimes(0.2, { typicalP: 0.5 + 0.5 * random.unit() }),
    ...sometimes(0.2, { xtcProbability: 0.5 }),
    ...sometimes(0.3, { repetitionPenalty: 1 + random.unit() / 2 }),
    ...sometimes(0.3, { presencePenalty: random.unit(), frequencyPenalty: random.unit() }),
    ...sometimes(0.3, { dryMultiplier: random.unit(), dryAllowedLength: 1 + random.below(3) }),
    ...sometimes(0.2, { logitBias: new Map([[token(), 3], [token(), -3]]) }),
  };
}

/** Returns the whole answer or its failure, without times, progress and cache-dependent figures. */
async function told(engine: Engine, { request, leavesAfter }: Asked): Promise<unknown[]> {
  const all: unknown[] = [];
  let tokens = 0;
  try {
    for await (const event of engine.submit(request)) {
      all.push(...partOf(event));
      if (event.type === "token" && ++tokens > leavesAfter) break;
    }
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    all.push({ error: error.code, message: error.message });
  }
  return all;
}

function partOf(event: TokenEvent): unknown[] {
  if (event.type === "progress") return [];
  if (event.type !== "finish") return [event];
  const { reason, stop, text, usage: { promptTokens, completionTokens, thinkingTokens } } = event;
  return [{ reason, stop, text, promptTokens, completionTokens, thinkingTokens }];
}

/** Counts of drafts. */
export interface Compared {
  readonly tokens: number;
  readonly drafted: number;
  readonly accepted: number;
  readonly preemptions: number;
  /** Number of constrained answers that ended complete. */
  readonly formed: number;
}

/**
 * Asks each request alone on an engine without drafts, then `company` at a time on an engine with drafts. This engine
 * is created when the answers are known, so that its drafters may use them. Throws at the first different byte.
 */
export async function compareDrafts(
  plain: Engine,
  open: (speculation: Speculation) => Engine | Promise<Engine>,
  asked: readonly Asked[],
  { company, right, drafters = [] }: { company: number; right: number; drafters?: readonly Drafter[] },
): Promise<Compared> {
  let formed = 0;
  const wanted: string[] = [];
  const answers = new Map<string, number[]>();
  for (const [i, one] of asked.entries()) {
    const events = await told(plain, { ...one, request: { ...one.request, cacheSalt: `alone ${i}` } });
    wanted.push(JSON.stringify(events));
    const tokens = (events as TokenEvent[]).flatMap((event) => event.type === "token" ? [event.token] : []);
    answers.set(one.request.prompt.join(), [...tokens, 0, 1, 2]);
    if (one.request.constraint && (events.at(-1) as { reason?: string })?.reason === "stop") formed++;
  }
  const { vocabSize } = plain.model;
  const known = new KnownAnswers(answers, { next: () => random.unit() }, right, vocabSize);
  const random = new Random(asked.length);
  const speculation = new Speculation([new LookupDrafter(), known, ...drafters], new FreeRows());
  const engine = await open(speculation);
  try {
    let next = 0;
    const ask = async () => {
      while (next < asked.length) {
        const i = next++;
        assertEquals(JSON.stringify(await told(engine, asked[i])), wanted[i], `request ${i}`);
      }
    };
    await Promise.all(Array.from({ length: company }, ask));
    while (engine.stats().running > 0) await new Promise((resolve) => setTimeout(resolve)); // disconnected requests may still be ending
    const { generatedTokens, draftedTokens, acceptedTokens, preemptions, kvBlocksUsed, waiting } = engine
      .stats();
    assertEquals({ waiting, kvBlocksUsed }, { waiting: 0, kvBlocksUsed: 0 });
    return { tokens: generatedTokens, drafted: draftedTokens, accepted: acceptedTokens, preemptions, formed };
  } finally {
    await engine.close();
  }
}
