import { assert, assertEquals } from "@std/assert";
import { Ajv2020 } from "ajv/dist/2020.js";
import { createGrammars } from "../../grammar/grammars.ts";
import type { Grammars, Matcher } from "../../grammar/types.ts";
import { randomIntegers } from "../../tokenizer/testing.ts";
import { put, readEveryWay, type TestModel, USER } from "../testing.ts";
import type { ChatPlan, ChatRequest } from "../types.ts";
import { everyNth } from "../../../testing/tier.ts";
import { FORMAT_CASES, TOOLS } from "./testing.ts";
import { accepts, checkTaken } from "./testing_answers.ts";

const ajv = new Ajv2020({ strict: false });
const valid = new Map(
  TOOLS.map(({ name, parameters }) =>
    [name, ajv.compile(parameters ?? { type: "object", additionalProperties: false })] as const
  ),
);

/** Asserts that every call names a tool and has valid arguments. */
function checkCalls(calls: readonly { name: string; arguments: string }[], text: string): void {
  for (const { name, arguments: args } of calls) {
    const check = valid.get(name);
    if (!check) throw new Error(`unknown name ${name} in ${text}`);
    assert(check(JSON.parse(args)), `${args} of ${text}: ${ajv.errorsText(check.errors)}`);
  }
}

/** Draws random allowed tokens, preferring ones that close structures. */
async function walk(
  grammars: Grammars,
  { form, tokenizer }: TestModel,
  matcher: Matcher,
  random: (n: number) => number,
): Promise<{ tokens: number[]; finished: boolean }> {
  const closing = new Set([...'"}])>/,'].map((unit) => tokenizer.encode(unit)[0]));
  // Endings that random characters would never spell.
  const endings = ["\n</parameter>\n", "</think>", "<tool_call>", "</arg_value>"]
    .map((text) => tokenizer.encode(text, { parseSpecial: true }));
  const tokens: number[] = [];
  const take = (token: number) => {
    assert(
      matcher.consume(token),
      `token ${token} is refused after ${tokenizer.decode(tokens, { special: true })}`,
    );
    tokens.push(token);
  };
  while (tokens.length < 500) {
    for (const token of matcher.forced()) take(token);
    if (matcher.complete) return { tokens, finished: true };
    if (random(12) === 0) {
      for (const token of endings[random(endings.length)]) {
        if (!matcher.consume(token)) break;
        tokens.push(token);
      }
      if (matcher.complete) return { tokens, finished: true };
    }
    const [mask] = await grammars.masks([matcher]);
    const allowed = Array.from({ length: tokenizer.vocabSize }, (_, token) => token)
      .filter((token) => (mask[token >> 5] >>> (token & 31) & 1) === 1);
    assert(allowed.length > 0, "nothing may follow");
    const preferred = allowed.filter((token) =>
      form.markers.has(token) || closing.has(token) || tokenizer.endTokens.has(token)
    );
    const choices = preferred.length > 0 && random(3) === 0 ? preferred : allowed;
    const token = choices[random(choices.length)];
    if (tokenizer.endTokens.has(token)) {
      assert(matcher.mayEnd, "the mask has an end token, and the answer may not end");
      return { tokens, finished: true };
    }
    take(token);
  }
  return { tokens, finished: false };
}

function read({ tokenizer }: TestModel, plan: ChatPlan, tokens: readonly number[]) {
  const reader = plan.reader();
  const decoder = tokenizer.streamDecoder({ continuation: true });
  const parts = tokens.flatMap((token) =>
    plan.markers.has(token) ? reader.marker(token) : reader.text(decoder.push(token))
  );
  return put([...parts, ...reader.text(decoder.end()), ...reader.end()]);
}

for (const [index, { title, model, write, ...form }] of everyNth(6, [...FORMAT_CASES.entries()])) {
  const plans: Record<string, Partial<ChatRequest>> = {
    auto: {},
    required: { toolChoice: "required" },
    named: { toolChoice: { name: "search" } },
    "auto with content in a form": {
      constraint: {
        kind: "json_schema",
        schema: {
          type: "object",
          properties: { ok: { type: "boolean" } },
          required: ["ok"],
          additionalProperties: false,
        },
      },
    },
  };

  Deno.test(`${title}: the grammar accepts the models' calls, and refuses other names and arguments`, async () => {
    const made = model();
    const grammars = createGrammars(made.tokenizer, made.form.markers);
    try {
      await checkTaken(grammars, made, { write, ...form }, index + 100, 25);
      const constraint = made.form.plan({ messages: USER, tools: TOOLS }).constraint!;
      const bare = { reasoning: "", content: "" };
      const refused = [
        write({ ...bare, calls: [{ name: "get_time", args: {} }] }),
        write({ ...bare, calls: [{ name: "now", args: { city: "Bonn" } }] }),
        write({ ...bare, calls: [{ name: "get_weather", args: { days: 1 } }] }),
        write({ ...bare, calls: [{ name: "get_weather", args: { city: "Bonn", days: "many" } }] }),
        write({ ...bare, calls: [{ name: "search", args: { query: "q", order: "oldest", tags: [] } }] }),
      ];
      for (const text of refused) {
        assert(await accepts(grammars, made, constraint, text) !== "whole", text);
      }
      const one = made.form.plan({ messages: USER, tools: TOOLS, parallelToolCalls: false }).constraint!;
      const call = { name: "now", args: {} };
      assertEquals(await accepts(grammars, made, one, write({ ...bare, calls: [call] })), "whole");
      if (form.many) {
        assert(await accepts(grammars, made, one, write({ ...bare, calls: [call, call] })) !== "whole");
      }
      const required = made.form.plan({ messages: USER, tools: TOOLS, toolChoice: "required" }).constraint!;
      assert(
        await accepts(grammars, made, required, write({ ...bare, content: "no", calls: [] })) !== "whole",
      );
    } finally {
      grammars.close();
    }
  });

  Deno.test(`${title}: every answer that the grammar accepts is read as valid calls`, async () => {
    const made = model();
    const grammars = createGrammars(made.tokenizer, made.form.markers);
    const random = randomIntegers(index + 1);
    try {
      for (const [kind, request] of Object.entries(plans)) {
        const plan = made.form.plan({ messages: USER, tools: TOOLS, ...request });
        const grammar = await grammars.compile(plan.constraint!);
        let finished = 0;
        for (let round = 0; round < 5; round++) {
          const matcher = grammar.matcher();
          const answer = await walk(grammars, made, matcher, random);
          matcher.close();
          const { content, calls } = read(made, plan, answer.tokens);
          if (!answer.finished) continue;
          finished++;
          const text = made.tokenizer.decode(answer.tokens, { special: true });
          checkCalls(calls, text);
          if (kind === "required" || kind === "named") assert(calls.length > 0 && content === "", text);
          if (kind === "named") assertEquals(calls.map(({ name }) => name), ["search"], text);
          if (request.constraint && calls.length === 0) {
            assertEquals(typeof JSON.parse(content).ok, "boolean", text);
          } else if (request.constraint) assertEquals(content, "", text);
          if (finished === 1) readEveryWay(made, plan, text);
        }
        assert(finished > 0, `${kind}: no walk came to its end`);
      }
    } finally {
      grammars.close();
    }
  });
}
