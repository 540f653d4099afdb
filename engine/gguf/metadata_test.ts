import { assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "./errors.ts";
import { byteOf, MetadataMap } from "./metadata.ts";
import type { MetadataValue } from "./types.ts";

const metadata = new MetadataMap(
  new Map<string, MetadataValue>([
    ["count", 7],
    ["fraction", 0.5],
    ["negative", -1],
    ["nan", NaN],
    ["large", 2n ** 60n],
    ["text", "llama"],
    ["flag", true],
    ["strings", ["a", "b"]],
    ["empty", []],
    ["numbers", Uint16Array.of(1, 2)],
    ["longs", [3n, -4n]],
    ["flags", [true]],
    ["huge", [2n ** 60n]],
  ]),
  new Map([["text", 99]]),
);

Deno.test("metadata: returns values of the right type", () => {
  assertEquals(metadata.getNumber("fraction"), 0.5);
  assertEquals(metadata.getCount("count"), 7);
  assertEquals(metadata.getString("text"), "llama");
  assertEquals(metadata.getBoolean("flag"), true);
  assertEquals(metadata.getStrings("strings"), ["a", "b"]);
  assertEquals(metadata.getNumbers("numbers"), Uint16Array.of(1, 2));
  assertEquals(metadata.getNumbers("longs"), [3, -4]);
  assertEquals([metadata.getStrings("empty"), metadata.getNumbers("empty")], [[], []]);
  assertEquals([metadata.has("text"), metadata.has("gone")], [true, false]);
});

Deno.test("metadata: a missing key returns the fallback, or undefined for arrays", () => {
  assertEquals(metadata.getNumber("gone", 0.25), 0.25);
  assertEquals(metadata.getCount("gone", 0), 0);
  assertEquals(metadata.getString("gone", ""), "");
  assertEquals(metadata.getBoolean("gone", false), false);
  assertEquals([metadata.getStrings("gone"), metadata.getNumbers("gone")], [undefined, undefined]);
});

const REFUSED: [what: string, get: () => unknown][] = [
  ["a missing number", () => metadata.getNumber("gone")],
  ["a missing string", () => metadata.getString("gone")],
  ["a string as number", () => metadata.getNumber("text", 1)],
  ["NaN as number", () => metadata.getNumber("nan")],
  ["a bigint as number", () => metadata.getNumber("large")],
  ["a fraction as count", () => metadata.getCount("fraction")],
  ["a negative count", () => metadata.getCount("negative")],
  ["a number as string", () => metadata.getString("count")],
  ["a number as boolean", () => metadata.getBoolean("count")],
  ["a string as strings", () => metadata.getStrings("text")],
  ["numbers as strings", () => metadata.getStrings("numbers")],
  ["a number as numbers", () => metadata.getNumbers("count")],
  ["strings as numbers", () => metadata.getNumbers("strings")],
  ["booleans as numbers", () => metadata.getNumbers("flags")],
  ["integers above 2^53 as numbers", () => metadata.getNumbers("huge")],
];

for (const [what, get] of REFUSED) {
  Deno.test(`metadata: refuses ${what}`, () => {
    assertEquals(assertThrows(get, GgufError).code, "GGUF_HPARAM");
  });
}

Deno.test("metadata: an error names the key and the byte of its value", () => {
  const error = assertThrows(() => metadata.getCount("text"), GgufError);
  assertEquals([error.byte, error.field, byteOf(metadata, "text")], [99, `key "text"`, 99]);
  assertEquals(
    error.message,
    `GGUF_HPARAM at byte 99, key "text": must be an integer >= 0 (got the string "llama")`,
  );
});
