import { assert, assertEquals } from "@std/assert";
import { type ChatModel, withChatModel } from "../../testing/chat_model.ts";
import { askBothWays } from "../../testing/tool_calls.ts";
import { bodyExaminer } from "../../lib/batch/check_body.ts";
import { execute } from "../../routes/execute.ts";

/* Tools whose schemas a grammar cannot express exactly, through every API, with a model of random weights. */

const city = { type: "string", maxLength: 6 };
/** `contains` and `if` are loosened; the rest holds. */
const parameters = {
  type: "object",
  properties: {
    cities: { type: "array", items: city, contains: { const: "Bonn" }, minItems: 1, maxItems: 2 },
    unit: { type: "string", enum: ["C", "F"], format: "unit" },
    note: { type: "boolean" },
  },
  required: ["cities"],
  if: { required: ["unit"] },
  then: { properties: { unit: { const: "C" } } },
};
const chatTools = [
  { type: "function" as const, function: { name: "weather", parameters } },
  { type: "function" as const, function: { name: "now", parameters: { type: "object", required: null } } },
];
const flatTools = chatTools.map(({ function: tool }) => ({ type: "function" as const, ...tool }));
const anthropicTools = chatTools.map(({ function: { name, parameters } }) => ({
  name,
  input_schema: parameters,
}));
const messages = [{ role: "user" as const, content: "Weather?" }];
/** A bias makes the end token more probable than others. */
const few = { max_tokens: 400, thinking_budget_tokens: 5, logit_bias: { 256: 4, 34: 3, 125: 3 } };

function checkCall(name: string, args: Record<string, unknown>): void {
  if (name === "now") return assertEquals(args, {});
  assertEquals(name, "weather");
  assert(Object.keys(args).every((key) => ["cities", "unit", "note"].includes(key)), JSON.stringify(args));
  const cities = args.cities as string[];
  assert(cities.length >= 1 && cities.length <= 2 && cities.every((city) => [...city].length <= 6));
  if ("unit" in args) assert(["C", "F"].includes(args.unit as string));
}

const CHOICES = [
  "auto",
  "required",
  { type: "function", function: { name: "weather" } },
  { type: "function", function: { name: "now" } },
] as const;

async function withModel(test: (model: ChatModel, warnings: string[]) => Promise<void>): Promise<void> {
  const warnings: string[] = [];
  await withChatModel("by itself", (model) => test(model, warnings), {
    warn: (message) => void warnings.push(message),
  });
}

Deno.test("loosened tools: chat calls match the enforced keywords, whole and streamed, and one warning lists the others", async () => {
  await withModel(async ({ client, engine }, warnings) => {
    let calls = 0;
    for (const tool_choice of CHOICES) {
      const request = { model: "random", messages, tools: chatTools, tool_choice, seed: 3, n: 3, ...few };
      for (const said of await askBothWays(client, request as never)) {
        if (said.finish === "length") continue;
        if (tool_choice !== "auto") assert(said.calls.length > 0, "a call is required");
        for (const { name, arguments: text } of said.calls) {
          calls++;
          checkCall(name, JSON.parse(text));
          if (typeof tool_choice === "object") assertEquals(name, tool_choice.function.name);
        }
      }
    }
    assert(calls > 3, `${calls} calls`);
    assertEquals(warnings, [
      'The tool "weather": calls may break these parts of its schema ("" is all of it), which cannot be enforced: ' +
      '"/properties/cities/contains", "/if", "/then"',
    ]);
    assertEquals(engine.stats().loosenedKeywords, 3);
  });
});

Deno.test("loosened tools: /v1/responses, /v1/messages and batch lines accept such tools", async () => {
  await withModel(async ({ engine }) => {
    const limits = { temperature: 0.7 };
    const bodies: [url: string, body: Record<string, unknown>][] = [
      ["/v1/chat/completions", { messages, tools: chatTools, tool_choice: "required", ...few }],
      ["/v1/responses", { input: "Hi", tools: flatTools, tool_choice: "required", max_output_tokens: 300 }],
      ["/v1/messages", { messages, tools: anthropicTools, tool_choice: { type: "any" }, max_tokens: 300 }],
    ];
    for (const [url, body] of bodies) {
      const { status, body: answer } = await execute(engine, {
        url,
        body: { model: "random", ...limits, ...body },
      });
      assertEquals(status, 200, JSON.stringify(answer));
    }
  });
});

Deno.test("loosened tools: a strict tool whose schema cannot be enforced is refused, and the error names the schema's place", async () => {
  await withModel(async ({ engine }, warnings) => {
    const strict = { strict: true };
    const bodies: [url: string, param: string, body: Record<string, unknown>][] = [
      ["/v1/chat/completions", "tools[0].function.parameters", {
        messages,
        tools: [{ type: "function", function: { ...chatTools[0].function, ...strict } }],
      }],
      ["/v1/responses", "tools[0].parameters", { input: "Hi", tools: [{ ...flatTools[0], ...strict }] }],
      ["/v1/messages", "tools[0].input_schema", {
        messages,
        max_tokens: 9,
        tools: [{ ...anthropicTools[0], ...strict }],
      }],
    ];
    for (const [url, param, body] of bodies) {
      const { status, body: answer } = await execute(engine, { url, body: { model: "random", ...body } });
      assertEquals(status, 400, JSON.stringify(answer));
      assert(JSON.stringify(answer).includes("contains"), JSON.stringify(answer));
      if (url !== "/v1/messages") assertEquals((answer.error as { param: string }).param, param);
    }
    assertEquals(warnings, []);
  });
});

Deno.test("loosened tools: a bound that no answer can meet is refused without strict", async () => {
  await withModel(async ({ engine }) => {
    const endless = { type: "object", properties: { a: { type: "array", minItems: 1e12 } } };
    const tools = [{ type: "function", function: { name: "f", parameters: endless } }];
    const body = { model: "random", messages, tools };
    const { status, body: answer } = await execute(engine, { url: "/v1/chat/completions", body });
    assertEquals([status, (answer.error as { code: string }).code], [400, "invalid_constraint"]);
  });
});

Deno.test("loosened tools: batch check accepts lines with such tools, but refuses a strict tool and names the unsupported keyword", async () => {
  const examine = bodyExaminer();
  const bodyOf = (strict: boolean) => ({
    model: "random",
    messages,
    tools: [{ type: "function", function: { ...chatTools[0].function, strict } }],
  });
  const line = { url: "/v1/chat/completions", custom_id: "a", line: 1 };
  assertEquals(await examine({ ...line, body: bodyOf(false) } as never), undefined);
  const found = JSON.stringify(await examine({ ...line, body: bodyOf(true) } as never));
  assert(found.includes("invalid_constraint") && found.includes("contains"), found);
});
