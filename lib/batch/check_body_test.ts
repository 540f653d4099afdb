import { assertEquals } from "@std/assert";
import { bodyExaminer } from "./check_body.ts";

Deno.test("checkBody: checks batch lines of /v1/messages and /infill without a model", async () => {
  const examine = bodyExaminer();
  const wrong = async (url: string, body: Record<string, unknown>) =>
    (await examine({ customId: "a", url, body }))?.param;
  const schema = { type: "object", properties: { a: { type: "nothing" } } };
  const messages = { max_tokens: 9, messages: [{ role: "user", content: "Hi" }] };
  const gap = { input_prefix: "a", input_suffix: "b" };
  assertEquals(await wrong("/v1/messages", messages), undefined);
  assertEquals(await wrong("/v1/messages", { messages: messages.messages }), "body.max_tokens");
  const format = { type: "json_schema", schema };
  assertEquals(
    await wrong("/v1/messages", { ...messages, output_config: { format } }),
    "body.output_config.format.schema",
  );
  assertEquals(
    await wrong("/v1/messages", { ...messages, output_format: format }),
    "body.output_format.schema",
  );
  const tool = { name: "f", input_schema: schema };
  const strict = { ...tool, strict: true };
  assertEquals(await wrong("/v1/messages", { ...messages, tools: [tool] }), undefined); // relaxed schema
  assertEquals(await wrong("/v1/messages", { ...messages, tools: [strict] }), "body.tools[0].input_schema");
  assertEquals(await wrong("/infill", gap), undefined);
  assertEquals(await wrong("/infill", { ...gap, json_schema: schema }), "body.json_schema");
});

Deno.test("checkBody: checks fields, schemas and tools of /v1/responses lines without a model", async () => {
  const examine = bodyExaminer();
  const wrong = async (body: Record<string, unknown>) =>
    (await examine({ customId: "a", url: "/v1/responses", body: { input: "Hi", ...body } }))?.param;
  const schema = { type: "object", properties: { a: { type: "nothing" } } };
  const format = { type: "json_schema", name: "a", schema };
  assertEquals(await wrong({}), undefined);
  assertEquals(await wrong({ input: [] }), "body.input");
  assertEquals(await wrong({ previous_response_id: "resp_1" }), "body.previous_response_id");
  assertEquals(await wrong({ text: { format } }), "body.text.format.schema");
  const tool = { type: "function", name: "f", parameters: schema };
  assertEquals(await wrong({ tools: [tool] }), undefined); // relaxed schema
  assertEquals(await wrong({ tools: [{ ...tool, strict: true }] }), "body.tools[0].parameters");
});
