import { loadEngine } from "../engine/load/load.ts";
import type { LoadOptions } from "../engine/load/options.ts";
import type { Constraint, Engine } from "../engine/mod.ts";
import { median } from "./samples.ts";

export interface FormsOptions extends LoadOptions {
  /** Numbers of sequences to decode concurrently; each number is measured in turn. */
  readonly sequences: readonly number[];
  /** Maximum tokens of each answer. */
  readonly decode: number;
  /** Called with a description of each phase of the measurement. */
  readonly onPhase?: (phase: string) => void;
}

/** The speed of constrained answers, compared with unconstrained answers of the same length. */
export interface FormsRow {
  readonly form: string;
  readonly sequences: number;
  /** Share of the answers' tokens that a constraint forced, without sampling. */
  readonly forced: number;
  /** Median tokens per second over all sequences; with `sampledOnly`, `formed` counts only sampled tokens. */
  readonly free: number;
  readonly formed: number;
  readonly sampledOnly: boolean;
  /** Ratio of `formed` to `free`: the median of the rounds, and their range. */
  readonly ratio: number;
  readonly lowest: number;
  readonly highest: number;
}

interface Form {
  readonly name: string;
  readonly constraint: Constraint;
  readonly sampledOnly: boolean;
}

const PROMPT_TOKENS = 32;
const ROUNDS = 7;

/** A schema of records with members of every kind. No answer reaches the end of the array. */
const RECORDS = {
  type: "array",
  minItems: 500,
  items: {
    type: "object",
    properties: {
      id: { type: "integer" },
      title: { type: "string", maxLength: 400 },
      state: { enum: ["open", "closed"] },
      score: { type: "number" },
      tags: { type: "array", items: { type: "string", maxLength: 100 } },
    },
    required: ["id", "title", "state", "score", "tags"],
    additionalProperties: false,
  },
};

/**
 * A schema whose answers have only one forced token, the first bracket. The ratio therefore shows the cost of masks
 * alone.
 */
const VALUES = {
  type: "array",
  minItems: 500,
  items: {
    anyOf: [
      { type: "string" },
      { type: "number" },
      { type: "array", items: { type: "string", maxLength: 200 } },
    ],
  },
};

/** A schema whose answers have forced property names, and values of a few tokens each. */
const HALF_GIVEN = {
  type: "array",
  minItems: 500,
  items: {
    type: "object",
    properties: Object.fromEntries(
      ["customer_name", "street_and_number", "town_or_village", "name_of_the_country"]
        .map((name) => [name, { type: "string", minLength: 14, maxLength: 18 }]),
    ),
    required: ["customer_name", "street_and_number", "town_or_village", "name_of_the_country"],
    additionalProperties: false,
  },
};

const FORMS: readonly Form[] = [
  { name: "nothing given", constraint: { kind: "json_schema", schema: VALUES }, sampledOnly: true },
  { name: "JSON schema", constraint: { kind: "json_schema", schema: RECORDS }, sampledOnly: true },
  { name: "names given", constraint: { kind: "json_schema", schema: HALF_GIVEN }, sampledOnly: false },
];

/**
 * Measures the cost of constraints and the time that forced tokens save, through the engine. Constrained and
 * unconstrained answers alternate. Throws as loading a model does.
 */
export async function benchForms(options: FormsOptions): Promise<FormsRow[]> {
  const { sequences, decode, onPhase = () => {} } = options;
  onPhase("loading");
  const parallel = Math.max(...sequences);
  const { engine } = await loadEngine({ ...options, parallel, contextLength: PROMPT_TOKENS + decode });
  try {
    const rows: FormsRow[] = [];
    for (const form of FORMS) {
      for (const count of sequences) {
        rows.push(
          await compare(
            engine,
            form,
            count,
            decode,
            (i) => onPhase(`${form.name}, ${count} sequences, ${i}`),
          ),
        );
      }
    }
    return rows;
  } finally {
    await engine.close();
  }
}

async function compare(
  engine: Engine,
  { name, constraint, sampledOnly }: Form,
  sequences: number,
  decode: number,
  onRound: (round: string) => void,
): Promise<FormsRow> {
  const rounds: { free: number; formed: number; forced: number }[] = [];
  await answer(engine, sequences, Math.min(8, decode), 0, constraint); // compiles the constraint and warms up
  for (let i = 0; i < ROUNDS; i++) {
    onRound(`round ${i + 1} of ${ROUNDS}`);
    const measure = async (kind?: Constraint) => await answer(engine, sequences, decode, 2 * i, kind);
    // The order of the two measurements alternates, too.
    const first = await measure(i % 2 === 0 ? undefined : constraint);
    const second = await measure(i % 2 === 0 ? constraint : undefined);
    const [free, formed] = i % 2 === 0 ? [first, second] : [second, first];
    const counted = sampledOnly ? formed.tokens - formed.forced : formed.tokens;
    rounds.push({
      free: free.tokens / free.seconds,
      formed: counted / formed.seconds,
      forced: formed.forced / formed.tokens,
    });
  }
  const ratios = rounds.map(({ free, formed }) => formed / free);
  return {
    form: name,
    sequences,
    forced: median(rounds.map(({ forced }) => forced)),
    free: median(rounds.map(({ free }) => free)),
    formed: median(rounds.map(({ formed }) => formed)),
    sampledOnly,
    ratio: median(ratios),
    lowest: Math.min(...ratios),
    highest: Math.max(...ratios),
  };
}

/**
 * Returns the tokens of concurrent answers while all of them decode: from the last answer's first token to the first
 * answer's end.
 */
async function answer(
  engine: Engine,
  sequences: number,
  maxTokens: number,
  seed: number,
  constraint?: Constraint,
): Promise<{ tokens: number; forced: number; seconds: number }> {
  const told = {
    begun: 0,
    start: { at: 0, generated: 0, forced: 0 },
    end: { at: 0, generated: 0, forced: 0 },
  };
  const now = () => {
    const { generatedTokens, forcedTokens } = engine.stats();
    return { at: performance.now(), generated: generatedTokens, forced: forcedTokens };
  };
  const one = async (index: number) => {
    const prompt = Array.from({ length: PROMPT_TOKENS }, (_, i) => 100 + 31 * index + i);
    const sampling = { seed: seed * 1000 + index };
    let begun = false;
    for await (const event of engine.submit({ prompt, maxTokens, constraint, ignoreEos: true, sampling })) {
      if (event.type === "token" && !begun) {
        begun = true;
        if (++told.begun === sequences) told.start = now();
      }
      if (event.type === "finish" && told.end.at === 0) told.end = now();
    }
  };
  await Promise.all(Array.from({ length: sequences }, (_, index) => one(index)));
  const { start, end } = told;
  return {
    tokens: end.generated - start.generated,
    forced: end.forced - start.forced,
    seconds: (end.at - start.at) / 1000,
  };
}
