import { assertEquals } from "@std/assert";
import { bodyExaminer } from "./batch_bodies.ts";

Deno.test("lines of Responses are examined without a model: fields, schemas and tools", async () => {
  const examine = bodyExaminer();
  const wrong = async (body: Record<string, unknown>) =>
    (await examine({ customId: "a", url: "/v1/responses", body: { input: "Hi", ...body } }))?.param;
  const schema = { type: "object", properties: { a: { type: "nothing" } } };
  const format = { type: "json_schema", name: "a", schema };
  assertEquals(await wrong({}), undefined);
  assertEquals(await wrong({ input: [] }), "body.input");
  assertEquals(await wrong({ previous_response_id: "resp_1" }), "body.previous_response_id");
  assertEquals(await wrong({ text: { format } }), "body.text.format.schema");
  const tools = [{ type: "function", name: "f", parameters: schema }];
  assertEquals(await wrong({ tools }), "body.tools[0].parameters");
});
