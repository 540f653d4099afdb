/**
 * Random constrained requests: schemas, grammars, several answers, stop texts, thinking, calls, streams and disconnects. Each request runs alone
 * and then among others with too small a KV cache. Both answers must be equal.
 */
import { assertEquals } from "@std/assert";
import { randomFrom } from "../../engine/grammar/testing.ts";
import type { Engine } from "../../engine/mod.ts";
import { serveHttp } from "../../routes/serve.ts";
import { withChatModel } from "../../testing/chat_model.ts";
import { judgeOf } from "../kernels/constraint_scenario.ts";
import { randomSchema, SCHEMAS } from "../kernels/constraint_schemas.ts";

type Json = Record<string, unknown>;
/** Returns the error of a complete answer, or nothing if it matches its constraint. */
type Judge = (text: string) => string | undefined;

interface Ask {
  readonly path: string;
  readonly body: Json;
  readonly judge: Judge;
}

/** An answer without ids and times. */
interface Answer {
  readonly status: number;
  readonly choices?: unknown;
  readonly usage?: unknown;
  readonly error?: unknown;
}

export interface CrowdFigures {
  asked: number;
  refused: number;
  whole: number;
  cut: number;
  /** Answers with the same error alone and concurrent, and the reasons. */
  readonly failed: string[];
  left: number;
  preemptions: number;
  /** Errors: answers that differ from those alone or violate their constraint. */
  readonly wrong: string[];
}

/** Concurrent readers: more than running sequences, and more than fit into the KV cache. */
const READERS = 24;
const SLOTS = { parallel: 16, contextLength: 448, kvBytes: 240_000, queue: 64 };

const MATCHES = (pattern: RegExp): Judge => (text) => pattern.test(text) ? undefined : `not ${pattern}`;

/** Grammars, each with a check of its answers. */
const GRAMMARS: readonly (readonly [Json, Judge])[] = [
  // Long answers to short prompts exhaust the memory.
  [{ guided_regex: "[a-z ]{150,200}" }, MATCHES(/^[a-z ]{150,200}$/)],
  [{ guided_regex: "[a-c]{2,30}(-[0-9]+)?" }, MATCHES(/^[a-c]{2,30}(-[0-9]+)?$/)],
  [{ guided_choice: ["Köln", "Bonn 🙂", "Bonn"] }, MATCHES(/^(Köln|Bonn|Bonn 🙂)$/)],
  [{ grammar: 'root ::= item ("," item)*\nitem ::= [0-9]{1,3}' }, MATCHES(/^\d{1,3}(,\d{1,3})*$/)],
  [{ grammar: 'start: "a" b+\nb: "b" | "cde fgh"' }, MATCHES(/^a(b|cde fgh)+$/)],
  [
    { structured_outputs: { regex: "(x|yes, and a long given text){3,9}" } },
    MATCHES(/^(x|yes, and a long given text){3,9}$/),
  ],
];
const STOPS = ['"', "a", ",", "1", "}", "}\n", "and a", "de f", "🙂", "ö"];
/** Other sampling settings, with their own state or randomness. */
const SAMPLERS: readonly Json[] = [
  { xtc_probability: 0.5, xtc_threshold: 0.02 },
  { typical_p: 0.4 },
  { top_n_sigma: 1 },
  { dry_multiplier: 2, dry_allowed_length: 1, dry_sequence_breakers: [] },
  { dry_multiplier: 1, dry_penalty_last_n: 20, repetition_penalty: 1.3, presence_penalty: -0.5 },
  { min_p: 0.02, top_p: 0.9, xtc_probability: 1, xtc_threshold: 0 },
];
const TOOLS = [
  { type: "function", function: { name: "now" } },
  {
    type: "function",
    function: {
      name: "get_weather",
      parameters: {
        type: "object",
        properties: {
          city: { type: "string", maxLength: 12 },
          days: { type: "integer", minimum: 1, maximum: 9 },
        },
        required: ["city"],
        additionalProperties: false,
      },
    },
  },
];

/** One random request. */
function randomAsk(random: () => number): Ask {
  const below = (limit: number) => Math.floor(random() * limit);
  const oneOf = <T>(values: readonly T[]) => values[below(values.length)];
  const chat = random() < 0.5;
  const [form, judge] = random() < 0.6 ? schemaOf(random, chat) : oneOf(GRAMMARS);
  const body: Json = {
    model: "random",
    max_tokens: 1 + below(random() < 0.5 ? 20 : 220),
    seed: below(1000),
    n: oneOf([1, 1, 1, 2, 3]),
    temperature: oneOf([0, 0.7, 1, 1, 2]),
    ...form,
  };
  if (random() < 0.3) body.stop = Array.from({ length: 1 + below(3) }, () => oneOf(STOPS));
  if (random() < 0.3) body.top_k = 1 + below(40);
  if (random() < 0.2) body.frequency_penalty = 1;
  if (random() < 0.3) Object.assign(body, oneOf(SAMPLERS));
  if (!chat) {
    if (random() < 0.2) body.logprobs = below(3);
    if (random() < 0.2) body.ignore_eos = true;
    const prompt = oneOf(["Say:", "And so it is that ", "A".repeat(150)]);
    return { path: "/v1/completions", body: { ...body, prompt }, judge };
  }
  if (random() < 0.2) Object.assign(body, { logprobs: true, top_logprobs: below(3) });
  if (random() < 0.5) body.reasoning_effort = "none";
  else body.thinking_budget_tokens = below(12);
  body.messages = [{ role: "user", content: oneOf(["Hello", "Weather in Köln? ".repeat(8)]) }];
  if (random() < 0.25) {
    return {
      path: "/v1/chat/completions",
      body: withTools(body, random),
      judge: () => undefined,
    };
  }
  return { path: "/v1/chat/completions", body, judge };
}

function schemaOf(random: () => number, chat: boolean): readonly [Json, Judge] {
  const schema = random() < 0.5 ? SCHEMAS[Math.floor(random() * SCHEMAS.length)] : randomSchema(random);
  const response_format = { type: "json_schema", json_schema: { name: "form", schema } };
  const isObject = typeof schema === "object";
  const form: Json = chat || !isObject
    ? { response_format }
    : random() < 0.5
    ? { json_schema: schema }
    : { guided_json: schema };
  let judge: Judge;
  return [isObject || chat ? form : { response_format }, (text) => (judge ??= judgeOf(schema))(text)];
}

/** Returns the body without its constraint, and with tools. */
function withTools(body: Json, random: () => number): Json {
  const forms = [
    "response_format",
    "json_schema",
    "guided_regex",
    "guided_choice",
    "grammar",
    "structured_outputs",
  ];
  const rest = Object.fromEntries(Object.entries(body).filter(([key]) => !forms.includes(key)));
  return {
    ...rest,
    tools: TOOLS,
    tool_choice: random() < 0.5 ? "required" : "auto",
    parallel_tool_calls: random() < 0.5,
  };
}

/** Runs `rounds` crowds. Never stops early: the figures contain the errors. */
export async function askCrowds(
  { rounds, seed, backend, tell = () => {} }: {
    rounds: number;
    seed: number;
    backend?: "webgpu";
    tell?: (line: string) => void;
  },
): Promise<CrowdFigures> {
  const random = randomFrom(seed);
  const figures: CrowdFigures = {
    asked: 0,
    refused: 0,
    whole: 0,
    cut: 0,
    failed: [],
    left: 0,
    preemptions: 0,
    wrong: [],
  };
  await withChatModel("by itself", async ({ engine }) => {
    const unforeseen: unknown[] = [];
    const server = serveHttp(engine, { signals: false, onError: (error) => unforeseen.push(error) });
    const base = `http://127.0.0.1:${server.port}`;
    try {
      for (let round = 0; round < rounds; round++) {
        const asks = Array.from({ length: READERS }, () => randomAsk(random));
        const alone: Answer[] = [];
        for (const ask of asks) alone.push(await whole(base, ask));
        for (const [i, answer] of alone.entries()) judgeAnswer(asks[i], answer, figures);
        // Each has its own random generator, so that the seed determines everything independent of timing.
        const own = asks.map(() => randomFrom(random() * 2 ** 32));
        await Promise.all(asks.map(async (ask, i) => {
          await new Promise((resolve) => setTimeout(resolve, own[i]() * 100));
          if (own[i]() < 0.25) return await leave(base, ask, own[i], figures);
          const answer = await (own[i]() < 0.5 ? whole(base, ask) : streamed(base, ask));
          compare(ask, answer, alone[i], figures);
        }));
        await idle(engine);
        figures.preemptions = engine.stats().preemptions;
        tell(
          `round ${round + 1}: ${
            JSON.stringify({ ...figures, failed: figures.failed.length, wrong: figures.wrong.length })
          }`,
        );
      }
      for (const error of unforeseen) figures.wrong.push(`unforeseen: ${error}`);
    } finally {
      await server.shutdown(0);
    }
  }, { ...SLOTS, backend });
  return figures;
}

async function post(
  base: string,
  { path, body }: Ask,
  stream: boolean,
  signal?: AbortSignal,
): Promise<Response> {
  return await fetch(`${base}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(stream ? { ...body, stream, stream_options: { include_usage: true } } : body),
    signal,
  });
}

async function whole(base: string, ask: Ask): Promise<Answer> {
  const response = await post(base, ask, false);
  return bare(response.status, await response.json());
}

/** Joins the chunks of a stream into an unstreamed answer. */
async function streamed(base: string, ask: Ask): Promise<Answer> {
  const response = await post(base, ask, true);
  if (response.status !== 200) return bare(response.status, await response.json());
  const said: Json = { choices: [] };
  for (const event of (await response.text()).split("\n\n")) {
    if (!event.startsWith("data: {")) continue;
    const chunk = JSON.parse(event.slice(6));
    if (chunk.error) return bare(500, chunk);
    if (chunk.usage) said.usage = chunk.usage;
    for (const { index, delta, ...rest } of chunk.choices ?? []) {
      const choice = ((said.choices as Json[])[index] ??= { index });
      merge(choice, delta ? { ...rest, message: delta } : rest);
    }
  }
  return bare(200, said);
}

const NOT_JOINED = new Set(["finish_reason", "role", "id", "type", "name", "index"]);

function merge(into: Json, from: Json): void {
  for (const [key, value] of Object.entries(from)) {
    const there = into[key];
    if (value === null || value === undefined) into[key] ??= value;
    else if (key === "tool_calls") {
      const calls = (into.tool_calls ??= []) as Json[];
      for (const { index, ...call } of value as Json[]) merge(calls[index as number] ??= {}, call);
    } else if (typeof there === "string" && typeof value === "string" && !NOT_JOINED.has(key)) {
      into[key] = there + value;
    } else if (Array.isArray(there) && Array.isArray(value)) there.push(...value);
    else if (typeof there === "object" && there !== null && typeof value === "object") {
      merge(there as Json, value as Json);
    } else into[key] = structuredClone(value);
  }
}

/** Figures that depend on other requests: cache hits and drafts. */
const VARIES = ["prompt_tokens_details", "accepted_prediction_tokens", "rejected_prediction_tokens"];

/** Removes ids, variable figures, and empty fields, which a stream omits. */
export function bare(status: number, { choices, usage, error }: Json): Answer {
  if (error) return { status: (error as Json).code === "constraint_failed" ? 500 : status, error };
  return { status, choices: tidy(choices), usage: tidy(usage) };
}

function tidy(value: unknown, key = ""): unknown {
  if (Array.isArray(value)) return value.map((item) => tidy(item, key));
  if (typeof value !== "object" || value === null) return value;
  const empty = (item: unknown) =>
    item === null || item === undefined || item === "" ||
    (typeof item === "object" && Object.keys(item).length === 0);
  const says = (name: string, item: unknown) =>
    !empty(item) && !(key === "tool_calls" && name === "id") && name !== "role" && !VARIES.includes(name);
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [name, tidy(item, name)] as const).filter(([name, item]) =>
      says(name, item)
    ),
  );
}

/** Disconnects during a stream or before an answer. */
async function leave(base: string, ask: Ask, random: () => number, figures: CrowdFigures): Promise<void> {
  figures.left++;
  const abort = new AbortController();
  const events = Math.floor(random() * 20);
  const timer = setTimeout(() => abort.abort(), random() * 300);
  try {
    const response = await post(base, ask, random() < 0.7, abort.signal);
    const reader = response.body!.getReader();
    for (let i = 0; i < events && !(await reader.read()).done; i++);
    await reader.cancel();
  } catch (error) {
    if (!abort.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

function judgeAnswer(ask: Ask, { status, choices, error }: Answer, figures: CrowdFigures): void {
  figures.asked++;
  if (status === 400) return void figures.refused++;
  if (status !== 200) {
    const list = (error as Json).code === "constraint_failed" ? figures.failed : figures.wrong;
    return void list.push(said(ask, error));
  }
  for (const choice of choices as Json[]) {
    const text = choice.text ?? (choice.message as Json | undefined)?.content ?? "";
    if (choice.finish_reason === "length") figures.cut++;
    else {
      figures.whole++;
      const why = ask.judge(text as string);
      if (why !== undefined) wrong(figures, ask, `${JSON.stringify(text)}: ${why}`);
    }
  }
}

function compare(ask: Ask, answer: Answer, alone: Answer, figures: CrowdFigures): void {
  try {
    assertEquals(answer, alone);
  } catch (error) {
    wrong(figures, ask, (error as Error).message);
  }
}

function wrong(figures: CrowdFigures, ask: Ask, what: string): void {
  figures.wrong.push(said(ask, what));
}

function said({ path, body }: Ask, what: unknown): string {
  return `${path} ${JSON.stringify(body)}: ${typeof what === "string" ? what : JSON.stringify(what)}`;
}

/** Checks that the crowd's resources are freed. */
async function idle(engine: Engine): Promise<void> {
  for (let i = 0; i < 500 && engine.stats().running + engine.stats().waiting > 0; i++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  const { running, waiting } = engine.stats();
  assertEquals({ running, waiting }, { running: 0, waiting: 0 });
}
