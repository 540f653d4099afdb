import { assertEquals, assertThrows } from "@std/assert";
import { finish } from "./pauses.ts";
import { parseLargeJson, type Stretch, writeLargeJson } from "./json.ts";

const utf8 = new TextEncoder();
const parse = (text: string) => finish(parseLargeJson(utf8.encode(text)));

const LONG = 'ab\\n"中👍\ufeff\u2028'.repeat(9000);
const BLANKS = " \n\t".repeat(20_000);

Deno.test("large JSON: the result equals that of JSON.parse, however large the values are", () => {
  const small = { a: [1, -2.5e3, true, null, ""], b: { c: [], d: {} } };
  const lists = { ids: Array.from({ length: 60_000 }, (_, i) => i), after: [[], [small], LONG] };
  const values: unknown[] = [
    small,
    7,
    LONG,
    [LONG, LONG],
    { content: LONG, [LONG]: LONG, last: 1 },
    lists,
    [[[lists]], lists.ids, {}, [lists, lists], 5],
    { messages: Array.from({ length: 3000 }, (_, i) => ({ role: "user", content: `text ${i}`, n: [i] })) },
    Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`key ${i}`, i])),
    Array.from({ length: 9 }, () => LONG.slice(0, 40_000)),
  ];
  for (const value of values) {
    for (const text of [JSON.stringify(value), JSON.stringify(value, null, 3)]) {
      assertEquals(parse(text), JSON.parse(text));
    }
  }
  assertEquals(parse(`\ufeff${BLANKS}[1${BLANKS},2]${BLANKS}`), [1, 2]);
});

Deno.test("large JSON: an escape at a slice's end stays whole, the last of equal names counts, and __proto__ is an ordinary name", () => {
  const escapes = `"${'\\ud83d\\udc4d\\\\\\"\\u0041x'.repeat(5000)}"`;
  assertEquals(parse(escapes), JSON.parse(escapes));
  const twice = `{"a":1,"__proto__":"${"x".repeat(50_000)}","b":[2],"a":"${"y".repeat(50_000)}"}`;
  const value = parse(twice) as Record<string, unknown>;
  assertEquals(Object.entries(value), Object.entries(JSON.parse(twice)));
  assertEquals(Object.getPrototypeOf(value), Object.prototype);
});

Deno.test("large JSON: refuses every text that JSON.parse refuses", () => {
  const ids = `[${"1,".repeat(40_000)}1]`;
  const text = JSON.stringify(LONG);
  const bad = [
    "",
    "[",
    `[${ids}`,
    `${ids}]`,
    `${ids},1`,
    `x${ids}`,
    `${ids}x`,
    `${ids}${ids}`,
    `[${ids},]`,
    `[,${ids}]`,
    `[${ids},,1]`,
    `[1 ${ids}]`,
    `[${ids} 1]`,
    `[${text} ${text}]`,
    `[${text}: 1]`,
    `{${text}}`,
    `{"a" ${text}}`,
    `{"a":1 "b":${ids}}`,
    `{"a":${ids},}`,
    `{,"a":${ids}}`,
    `{${ids}:1}`,
    `{"a":-${ids}}`,
    `{"a":1${ids}}`,
    ids.slice(0, -1) + "}",
    ids.slice(0, -1) + ",]",
    ids.slice(0, -3) + ",,1]",
    text.slice(0, -1),
    `${text.slice(0, -1)}\\`,
    text.replace("ab", "a\n"),
    `"\\x${text.slice(1)}`,
    `[${BLANKS}`,
  ];
  for (const one of bad) {
    assertThrows(() => JSON.parse(one), SyntaxError);
    assertThrows(() => parse(one), SyntaxError, undefined, one.slice(0, 20) + "…" + one.slice(-20));
  }
  assertThrows(() => finish(parseLargeJson(new Uint8Array(100_000).fill(0xef))), TypeError);
  const bytes = utf8.encode(text);
  bytes[bytes.length - 9] = 0xff;
  assertThrows(() => finish(parseLargeJson(bytes)), TypeError);
});

Deno.test("large JSON: a byte order mark is skipped, and long strings have their positions in the given bytes", () => {
  const image = "QUJD".repeat(20_000);
  const bytes = utf8.encode(`\ufeff{"a":"${image}"}`);
  const long: Stretch[] = [];
  assertEquals(finish(parseLargeJson(bytes, long)), { a: image });
  assertEquals(long.map(({ start, end }) => new TextDecoder().decode(bytes.subarray(start, end))), [image]);
  const other = utf8.encode(`\uff5b${bytes.subarray(3)}`); // its first byte is that of a mark
  assertThrows(() => finish(parseLargeJson(other)), SyntaxError);
});

Deno.test("large JSON: is parsed and written in slices whose length does not depend on the text's length", () => {
  for (
    const text of [
      `[${"1,".repeat(400_000)}1]`,
      JSON.stringify(LONG.repeat(5)),
      `[${"[[1]],".repeat(99_999)}0]`,
    ]
  ) {
    const offers = [...parseLargeJson(utf8.encode(text))].length;
    assertEquals(offers >= text.length / 8192, true);
  }
  const { parse: parseJson } = JSON;
  let longest = 0;
  JSON.parse = (text: string) => {
    longest = Math.max(longest, text.length);
    return parseJson(text);
  };
  try {
    for (const part of ["\\n", "\\u000a", "👍", "a"]) parse(`["${part.repeat(100_000)}"]`);
  } finally {
    JSON.parse = parseJson;
  }
  assertEquals(longest < 40_000, true, `${longest}`);
  const list = Array.from({ length: 100_000 }, (_, id) => ({ id }));
  assertEquals([...writeLargeJson({ list })].length >= 90, true);
});

Deno.test("large JSON: is written like JSON.stringify does", () => {
  const list = Array.from({ length: 5000 }, (_, i) => i % 3 ? { i, t: `"${i}` } : undefined);
  for (const value of [{}, [], { a: undefined, b: 1, list, c: [1], d: { list } }, { a: undefined }, list]) {
    assertEquals(finish(writeLargeJson(value)), JSON.stringify(value));
  }
});
