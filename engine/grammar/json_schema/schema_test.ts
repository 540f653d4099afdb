import { pausesOf } from "../../pacing/testing.ts";
import { assert, assertEquals, assertThrows } from "@std/assert";
import { rustPattern } from "../pattern/ecma_pattern.ts";
import { compilableSchema } from "./schema.ts";
import { ConstraintError } from "../types.ts";

function compiled(schema: unknown): Record<string, unknown> {
  return compilableSchema(schema).schema as Record<string, unknown>;
}

const REFUSED: readonly [unknown, string][] = [
  [{ not: { minimum: 3 } }, '"/not" is supported with a const, an enum, types or a pattern only'],
  [{ not: { const: [1] } }, '"/not" cannot exclude lists and objects'],
  [{ properties: { "a/b": { if: {}, then: {} } } }, '"/properties/a~1b/if" is not supported'],
  [
    { anyOf: [{}, { uniqueItems: true }] },
    '"/anyOf/1/uniqueItems" is supported only for lists of few values from an enum',
  ],
  [{ $defs: { x: { contains: {} } } }, '"/$defs/x/contains" is not supported'],
  [{ unevaluatedProperties: false, $ref: "#" }, '"/unevaluatedProperties" is not supported here'],
  [{ dependentRequired: { a: ["b"] } }, '"/dependentRequired" is not supported'],
  [{ propertyNames: { pattern: "x", minLength: 3 } }, '"/propertyNames" is supported with an enum'],
  [{ pattern: "(?<=ab)c" }, '"/pattern" looks behind at more than one character'],
  [{ pattern: "x(?=.{1,64}@)y" }, '"/pattern" is too large together with its look-around'],
  [{ pattern: "(a)\\1" }, '"/pattern" has \\1, which is not supported'],
  [{ pattern: "a(" }, '"/pattern" is not a valid regular expression'],
  [{ patternProperties: { "^(?!a)(?!b)": {} } }, "has look-around, which is not supported here"],
  [{ $ref: "https://example.org/x.json" }, '"/$ref" must lead to a place in the schema itself'],
  [{ $ref: "#/$defs/missing" }, '"/$ref" there is no schema at "#/$defs/missing"'],
  [{ $ref: "#/default", default: {} }, 'there is no schema at "#/default"'],
  [{ $defs: { a: { $id: "b" } } }, '"/$defs/a/$id" is supported at the schema\'s root only'],
  [{ properties: [] }, '"/properties" must be an object'],
  [{ anyOf: {} }, '"/anyOf" must be a list'],
  [{ items: 5 }, '"/items" must be an object or a boolean'],
  [5, "The schema must be an object or a boolean"],
  [{ minimum: 1e300 }, '"/minimum" must be a number within 64 bits (got 1e+300)'],
  [{ exclusiveMinimum: true }, '"/exclusiveMinimum" must be a number within 64 bits (got true)'],
  [{ minLength: -1 }, '"/minLength" must be a whole number from 0 (got -1)'],
  [{ minItems: 1.5 }, '"/minItems" must be a whole number from 0 (got 1.5)'],
  [{ minItems: 1e12 }, '"/minItems" must be at most 1000000: no answer is that long (got 1000000000000)'],
  [{ maxProperties: "2" }, '"/maxProperties" must be a whole number from 0 (got "2")'],
  [{ multipleOf: 0.07 }, '"/multipleOf" must have at most 9 digits, and a fraction that ends (got 0.07)'],
  [{ type: "text" }, '"/type" must be of null, boolean, number, integer, string, array, object (got "text")'],
  [{ multipleOf: 0 }, '"/multipleOf" must be a number above 0'],
  [
    { properties: { a: {} }, maxProperties: 1 },
    '"/maxProperties" is supported only where all properties are required',
  ],
  [{ const: "a\x1fb" }, '"/const" has a character that answers do not write'],
  [{ items: { const: { a: ["\x7f"] } } }, '"/items/const" has a character that answers do not write'],
  [{ enum: ["\x00", ["\x01"]] }, '"/enum" has a character that answers do not write'],
  [{ const: "\ud800" }, '"/const" has a character that answers do not write'],
  [{ properties: { "\udc00": {} } }, '"/properties" has half a surrogate pair'],
  [{ required: ["\ud800"] }, '"/required" has half a surrogate pair'],
  [{ pattern: "^\ud800$" }, '"/pattern" has half a surrogate pair'],
  [{ minProperties: 2 }, '"/minProperties" must be at most 1, because other properties are allowed (got 2)'],
];

for (const [schema, message] of REFUSED) {
  Deno.test(`compilableSchema: refuses a schema, and the message has the keyword's path: ${message}`, () => {
    const error = assertThrows(() => compilableSchema(schema), ConstraintError);
    assert(error.message.includes(message), error.message);
  });
}

Deno.test("compilableSchema: ignores options for llguidance in a client's schema", () => {
  const { "x-guidance": options, ...rest } = compiled({
    "x-guidance": { lenient: true, whitespace_flexible: true },
    type: "object",
    properties: { "x-guidance": { type: "null" } },
  });
  assertEquals((options as { lenient?: boolean }).lenient, undefined);
  assertEquals(rest, { type: "object", properties: { "x-guidance": { type: "null" } } });
});

Deno.test("compilableSchema: narrows bounds with too many digits to fewer digits", () => {
  const read = (bounds: object) => {
    const { "x-guidance": _, ...rest } = compiled(bounds);
    return rest;
  };
  assertEquals(read({ minimum: 0.30000000000000004, maximum: 0.9999999999999999 }), {
    minimum: 0.300000000000001,
    maximum: 0.999999999999999,
  });
  const same = { minimum: 0.1, maximum: 9007199254740991 };
  assertEquals(read(same), same);
});

const LARGEST = Number.MAX_SAFE_INTEGER;

Deno.test("compilableSchema: replaces an excluded bound by the next number inward", () => {
  const cases: [bounds: object, minimum: number, maximum: number][] = [
    [{ exclusiveMaximum: 5 }, -LARGEST, 4.99999999999999],
    [{ exclusiveMinimum: 5, maximum: 6 }, 5.00000000000001, 6],
    [{ exclusiveMinimum: -0.30000000000000004 }, -0.3, LARGEST],
    [{ exclusiveMinimum: 0, exclusiveMaximum: 0 }, 1e-20, -1e-20],
    [{ exclusiveMinimum: 1, minimum: 2, exclusiveMaximum: 9, maximum: 8.5 }, 2, 8.5],
    [{ type: "integer", exclusiveMaximum: 9007199254740991 }, -LARGEST, 9007199254740990],
  ];
  for (const [bounds, minimum, maximum] of cases) {
    const read = compiled(bounds);
    assertEquals([read.minimum, read.maximum], [minimum, maximum], JSON.stringify(bounds));
    assertEquals(["exclusiveMinimum" in read, "exclusiveMaximum" in read], [false, false]);
  }
});

Deno.test("compilableSchema: drops keywords that restrict nothing, but keeps properties with their names", () => {
  const { "x-guidance": _, ...rest } = compiled({
    uniqueItems: false,
    propertyNames: { type: "string" },
    then: { contains: {} },
    minContains: 3,
    default: 1,
    deprecated: true,
    vendor: { anything: [] },
    properties: { not: { type: "null" }, ["__proto__"]: { type: "null" } },
  });
  assertEquals(JSON.stringify(rest), '{"properties":{"not":{"type":"null"},"__proto__":{"type":"null"}}}');
});

const KINDS = {
  cat: {
    type: "object",
    properties: { kind: { const: "cat" }, lives: { type: "integer" } },
    required: ["kind", "lives"],
  },
  dog: { type: "object", properties: { kind: { enum: ["dog", "puppy"] } }, required: ["kind"] },
};

Deno.test("compilableSchema: turns a oneOf into an anyOf when its schemas exclude each other, also by reference", () => {
  const oneOfs: [unknown, boolean][] = [
    [{ oneOf: [{ $ref: "#/$defs/cat" }, { $ref: "#/$defs/dog" }], $defs: KINDS }, true],
    [{ oneOf: [{ type: "integer" }, { type: ["string", "null"] }] }, true],
    [{ oneOf: [{ const: 1 }, { enum: [2, 3] }] }, true],
    [{ oneOf: [{ type: "integer" }, { type: "number" }] }, false],
    [{ oneOf: [{ $ref: "#/$defs/cat" }, { $ref: "#/$defs/cat" }], $defs: KINDS }, false],
    [{ oneOf: [KINDS.cat, { ...KINDS.dog, required: [] }] }, false],
    // A value that is not an object is valid under both schemas.
    [{ oneOf: [{ ...KINDS.cat, type: undefined }, { ...KINDS.dog, type: undefined }] }, false],
    [{ $defs: { a: { oneOf: [{ $ref: "#/$defs/a" }, { type: "null" }] } }, $ref: "#/$defs/a" }, false],
  ];
  for (const [schema, exclusive] of oneOfs) {
    const compilable = JSON.stringify(compiled(JSON.parse(JSON.stringify(schema))));
    assertEquals(!compilable.includes("oneOf"), exclusive, compilable);
  }
});

/**
 * The campaign checks that a translated pattern keeps its ECMAScript meaning. This test checks the text of the
 * translation.
 */
Deno.test("rustPattern: patterns keep their meaning in Rust's syntax", () => {
  assertEquals(rustPattern("^[a-z&&[]$"), "^[a-z\\u{26}\\u{26}\\u{5b}]$");
  assertEquals(
    rustPattern("[-a][^-][\\d-x]"),
    "[\\x2da][[^\\x2d]&&[^\\x00-\\x07\\x0b\\x0e-\\x1f\\x7f]][[0-9]\\x2dx]",
  );
  assertEquals(rustPattern("a.b"), "a[^\\n\\r\\u{2028}\\u{2029}]b");
  assertEquals(rustPattern("\\/\\ud83d\\ude00\\x41"), "\\u{2f}\\u{1f600}\\u{41}");
  assertEquals(rustPattern("(?<n>x)(?:y)"), "(?:x)(?:y)");
  assertEquals(rustPattern("a\\x01|\\v\\n"), "a[^\\x00-\\u{10ffff}]|[^\\x00-\\u{10ffff}]\\u{a}");
});

Deno.test("JSON schema: reads a large schema in pieces, with the same outcome", async () => {
  const part = { type: "object", properties: { a: { type: "string", minLength: 1 }, b: { enum: [1, "x"] } } };
  const schema = {
    type: "object",
    properties: Object.fromEntries(Array.from({ length: 900 }, (_, i) => [`p${i}`, part])),
  };
  const { result, pauses } = await pausesOf(() => compilableSchema(schema, { closed: true }));
  assertEquals(result, compilableSchema(schema, { closed: true }));
  assertEquals(pauses >= 50, true);
});
