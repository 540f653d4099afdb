import { fullTier } from "../../testing/tier.ts";
import { assert, assertEquals, assertThrows } from "@std/assert";
import { pausesOf } from "../../engine/pacing/testing.ts";
import { ApiError } from "./errors.ts";
import { HugeNumber, parseJson } from "./json.ts";

const parse = (text: string) => parseJson(new TextEncoder().encode(text));

Deno.test("parseJson: keeps numbers beyond a float as written, and parses all others like JSON.parse", () => {
  const nines = "9".repeat(309);
  const huge = ["1e999", "-1E+400", "1.5e309", nines, `-${nines}.0`];
  assertEquals(parse(`[${huge.join()}]`), huge.map((written) => new HugeNumber(written)));
  const others =
    '{"a":1e308,"b":-1e308,"c":1e-999,"d":"1e999","e":[1e3,0.1,12345678901234567890],"f":"9e999"}';
  assertEquals(parse(others), JSON.parse(others));
});

fullTier.test("parseJson: takes no longer for 8 MB that look like huge numbers", () => {
  const runs = `[${"1".repeat(308)}${`,${"1".repeat(308)}`.repeat(26_000)}]`;
  const values = `[${"123,".repeat(1_900_000)}1e999]`;
  const plain = `[${"123456,".repeat(1_100_000)}1]`;
  const time = (text: string) => {
    const bytes = new TextEncoder().encode(text);
    const start = performance.now();
    parseJson(bytes);
    return performance.now() - start;
  };
  const usual = Math.min(...[1, 2, 3].map(() => time(plain)));
  for (const text of [runs, values]) {
    const ms = Math.min(...[1, 2, 3].map(() => time(text)));
    assert(ms < 10 * usual, `${ms} ms, ${usual} usually`);
  }
  assertEquals((parse(values) as number[]).at(-1), Infinity);
});

Deno.test("parseJson: refuses an object with more than 10,000 fields, which is slow to handle", () => {
  const wide = (count: number) =>
    JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, 1])));
  assertEquals(Object.keys(parse(`[[1,2],${wide(10_000)}]`) as unknown[]).length, 2);
  for (const text of [wide(10_001), `{"a":[1,${wide(20_000)}]}`]) {
    assertThrows(() => parse(text), ApiError, "must have at most 10000 fields in one object");
  }
  assertThrows(() => parse("}},,,,"), ApiError, "not valid JSON");
});

Deno.test("parseJson: counts and parses a large body in pieces", async () => {
  for (const body of [{ tokens: new Array(200_000).fill(1234) }, { text: 'a"b'.repeat(300_000) }]) {
    const bytes = new TextEncoder().encode(JSON.stringify(body));
    const { result, pauses } = await pausesOf(() => parseJson(bytes));
    assertEquals(JSON.stringify(result), JSON.stringify(body));
    assert(pauses > bytes.length / 4096 + bytes.length / 20_000, `${pauses}`);
  }
});
