import { assertEquals } from "@std/assert";
import { createApp } from "./app.ts";
import { FakeEngine } from "./testing.ts";

interface Schema {
  readonly $ref?: string;
  readonly enum?: readonly unknown[];
  readonly type?: string | readonly string[];
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
}

const infill = { prefix: 1, suffix: 2, middle: 3, repo: undefined, file: undefined };
const pulls = { async *pull() {} };
const generating = createApp(new FakeEngine({ infill }), { pulls });
const ranking = createApp(new FakeEngine({ pooled: { kind: "rank", size: 2 } }));

Deno.test("OpenAPI document: states for every body field whether it may be null", async () => {
  const { paths, components } = await (await generating.request("/doc")).json();
  const schemaOf = ({ $ref, ...own }: Schema): Schema => {
    return $ref ? { ...components.schemas[$ref.split("/").at(-1)!], ...own } : own;
  };
  const mayBeNull = (given: Schema): boolean => {
    const { enum: values, type, anyOf, oneOf } = schemaOf(given);
    if (values) return values.includes(null);
    if (type) return [type].flat().includes("null");
    return (anyOf ?? oneOf ?? [{ type: "null" }]).some(mayBeNull);
  };
  const wrong: string[] = [];
  for (const [path, { post }] of Object.entries<{ post?: { requestBody?: { content: object } } }>(paths)) {
    const [body] = Object.values(post?.requestBody?.content ?? {});
    if (!body?.example) continue;
    const app = /rerank|classify|moderations/.test(path) ? ranking : generating;
    for (const [field, shown] of Object.entries(schemaOf(body.schema).properties ?? {})) {
      const response = await app.request(path, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ ...body.example, [field]: null }),
      });
      await response.body?.cancel();
      if ((response.status === 200) !== mayBeNull(shown)) wrong.push(`${path} ${field}: ${response.status}`);
    }
  }
  assertEquals(wrong, []);
});
