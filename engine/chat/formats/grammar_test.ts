import { assert, assertEquals } from "@std/assert";
import { Ajv2020 } from "ajv/dist/2020.js";
import { createGrammars } from "../../grammar/grammars.ts";
import { randomIntegers } from "../../tokenizer/testing.ts";
import { readEveryWay, USER } from "../testing.ts";
import type { ChatRequest } from "../types.ts";
import { everyNth } from "../../../testing/tier.ts";
import { FORMAT_CASES, TOOLS } from "./testing.ts";
import { accepts, checkTaken } from "./testing_answers.ts";
import { read, walk } from "./testing_walks.ts";

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
