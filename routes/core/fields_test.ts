import { assert, assertEquals } from "@std/assert";
import { z } from "@hono/zod-openapi";
import { pausesOf } from "../../engine/pacing/testing.ts";
import { boundedArray, tokenIds } from "./fields.ts";

const entry = z.object({ role: z.string(), more: z.number().default(1) });
const list = boundedArray(entry, 1, 10_000);

Deno.test("boundedArray: checks a long array in pieces, with the same outcome", async () => {
  const entries = Array.from({ length: 5000 }, (_, i) => ({ role: `r${i}`, other: true }));
  const { result, pauses } = await pausesOf(() => list.safeParse(entries));
  assertEquals(result.data, z.array(entry).parse(entries));
  assert(pauses >= 300, `${pauses}`);
});

Deno.test("boundedArray: names the first wrong entry of a long array", () => {
  const entries: unknown[] = Array.from({ length: 5000 }, () => ({ role: "a" }));
  entries[4321] = { role: 7 };
  const { error } = list.safeParse(entries, { reportInput: true });
  const [{ path, code, input, message }] =
    z.array(entry).safeParse(entries, { reportInput: true }).error!.issues;
  assertEquals(path, [4321, "role"]);
  assertEquals(error!.issues.map((issue) => [issue.path, issue.code, issue.input, issue.message]), [[
    path,
    code,
    input,
    message,
  ]]);
});

Deno.test("token ids: a long list is checked in pieces", async () => {
  const ids: unknown[] = new Array(500_000).fill(7);
  const { result, pauses } = await pausesOf(() => tokenIds.safeParse(ids));
  assertEquals(result.success, true);
  assert(pauses >= 30, `${pauses}`);
  ids[499_999] = -1;
  assertEquals(tokenIds.safeParse(ids).error?.issues[0].path, [499_999]);
});
