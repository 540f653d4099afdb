import { assert, assertEquals, assertRejects } from "@std/assert";
import { loadEngine } from "../../engine/load/load.ts";
import type { Constraint, Engine, GenerateRequest, TokenEvent } from "../../engine/mod.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { TEST_BACKEND } from "../../testing/kernel_model.ts";
import { bytesOfContext } from "./preemption_scenario.ts";

/* Constrained answers with the kernels, the grammar library and the demo model. */

const MODEL = "models/demo.gguf";
const SCHEMA: Constraint = {
  kind: "json_schema",
  schema: {
    type: "object",
    properties: {
      full_name_of_the_person: { type: "string", maxLength: 20 },
      age: { type: "integer", minimum: 0, maximum: 130 },
      favourite_colour: { enum: ["red", "green", "blue"] },
      pets: { type: "array", items: { type: "string", maxLength: 8 }, maxItems: 3 },
    },
    required: ["full_name_of_the_person", "age", "favourite_colour", "pets"],
    additionalProperties: false,
  },
};

interface Answer {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly told: string;
  readonly reason: string;
}

async function answer(engine: Engine, request: GenerateRequest): Promise<Answer> {
  const events: TokenEvent[] = [];
  for await (const event of engine.submit(request)) if (event.type !== "progress") events.push(event);
  const finish = events.pop()!;
  if (finish.type !== "finish") throw new Error("No finish");
  const tokens = events.filter((event) => event.type === "token");
  return {
    text: tokens.map(({ text }) => text).join("") + finish.text,
    tokens: tokens.map(({ token }) => token),
    told: JSON.stringify(events),
    reason: finish.reason,
  };
}

function check(text: string): void {
  const { full_name_of_the_person: name, age, favourite_colour: colour, pets, ...rest } = JSON.parse(text);
  assert([...name].length <= 20 && Number.isInteger(age) && age >= 0 && age <= 130, text);
  assert(["red", "green", "blue"].includes(colour) && pets.length <= 3, text);
  assert(pets.every((pet: string) => [...pet].length <= 8), text);
  assertEquals(rest, {});
}

function requestOf(engine: Engine, i: number): GenerateRequest {
  const prompt = engine.encodeChat([{
    role: "user",
    content: `Tell me of person ${i}: ${"who ".repeat(i * 3)}?`,
  }]);
  const sampling = i % 3 === 0 ? { temperature: 0 } : { seed: i, temperature: 1.5 };
  return {
    prompt,
    constraint: i % 4 === 3 ? undefined : SCHEMA,
    maxTokens: 200,
    sampling,
    logprobs: i % 2 ? 2 : undefined,
  };
}

Deno.test("constraints: schema answers are complete, and the same alone and concurrent", async () => {
  const crowd = Array.from({ length: 20 }, (_, i) => i);
  const { engine } = await loadEngine({
    model: MODEL,
    backend: TEST_BACKEND,
    threads: 2,
    contextLength: 320,
    parallel: 4,
  });
  const alone: Answer[] = [];
  try {
    for (const i of crowd) {
      alone.push(await answer(engine, { ...requestOf(engine, i), cacheSalt: `${i}` }));
      if (!requestOf(engine, i).constraint) continue;
      assertEquals(alone[i].reason, "stop");
      check(alone[i].text);
    }
    assert(engine.stats().forcedTokens > 100);
    assertEquals(await Promise.all(crowd.map((i) => answer(engine, requestOf(engine, i)))), alone);
  } finally {
    await engine.close();
  }
  // Little memory causes preemption; with many sequences forced tokens get fewer rows per step.
  const kvBytes = await bytesOfContext(MODEL, "f16", 320);
  for (const options of [{ threads: 1, parallel: 8, kvBytes }, { threads: 2, parallel: 20 }]) {
    const { engine } = await loadEngine({
      model: MODEL,
      backend: TEST_BACKEND,
      contextLength: 320,
      ...options,
    });
    try {
      assertEquals(await Promise.all(crowd.map((i) => answer(engine, requestOf(engine, i)))), alone);
    } finally {
      await engine.close();
    }
  }
});

Deno.test("constraints: answers match every kind of constraint up to the token limit, and cut answers have finish reason length", async () => {
  const { engine } = await loadEngine({
    model: MODEL,
    backend: TEST_BACKEND,
    threads: 2,
    contextLength: 256,
    parallel: 4,
  });
  const ask = (constraint: Constraint, more: Partial<GenerateRequest> = {}) =>
    answer(engine, { prompt: engine.encodePrompt("Once"), constraint, maxTokens: 60, ...more });
  try {
    assert(/^[a-f]{5}-\d{3}$/.test((await ask({ kind: "regex", pattern: "[a-f]{5}-[0-9]{3}" })).text));
    assert(["left", "right"].includes((await ask({ kind: "choice", choices: ["left", "right"] })).text));
    const one = await ask({ kind: "choice", choices: ["this and nothing else"] });
    assertEquals([one.text, one.reason], ["this and nothing else", "stop"]);
    assertEquals(one.tokens, engine.tokenizer.encode("this and nothing else"));
    const lark = await ask({ kind: "lark", grammar: 'start: "(" NUMBER ")"\nNUMBER: /[0-9]{1,4}/' });
    assert(/^\(\d{1,4}\)$/.test(lark.text), lark.text);
    const cut = await ask(SCHEMA, { maxTokens: 9 });
    assertEquals([cut.reason, cut.tokens.length], ["length", 9]);
    await assertRejects(() => ask({ kind: "regex", pattern: "(" }), Error, "");
  } finally {
    await engine.close();
  }
});

gpuTest("constraints: GPU answers match a schema", async () => {
  const { engine } = await loadEngine({ model: MODEL, backend: "webgpu", contextLength: 320, parallel: 4 });
  try {
    const answers = await Promise.all([0, 1, 2, 3].map((i) => answer(engine, requestOf(engine, i))));
    for (const i of [0, 1, 2]) {
      assertEquals(answers[i].reason, "stop");
      check(answers[i].text);
    }
  } finally {
    await engine.close();
  }
});
