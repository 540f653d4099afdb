import { assert, assertEquals, assertRejects } from "@std/assert";
import { createGrammars } from "../grammars.ts";
import { byteTokenizer, takes } from "../testing.ts";
import { type Constraint, ConstraintError, type LoosenedSchema } from "../types.ts";

/* What grammars of single keywords accept. Each row has values that the schema accepts, and values that it refuses. */

type Row = readonly [
  schema: Record<string, unknown>,
  accepted: readonly unknown[],
  refused: readonly unknown[],
];

async function checkRows(
  rows: readonly Row[],
  use: { closed?: boolean; looseFor?: string } = {},
): Promise<void> {
  const grammars = createGrammars(byteTokenizer);
  try {
    for (const [schema, accepted, refused] of rows) {
      const grammar = await grammars.compile({ kind: "json_schema", schema, ...use });
      for (const value of accepted) {
        assert(takes(grammar, written(value)), `${JSON.stringify(schema)}: ${written(value)}`);
      }
      for (const value of refused) {
        assert(!takes(grammar, written(value)), `${JSON.stringify(schema)}: ${written(value)}`);
      }
    }
  } finally {
    grammars.close();
  }
}

/** Returns a value as JSON text. For a function, returns its result unchanged, which may be invalid JSON. */
function written(value: unknown): string {
  if (typeof value === "function") return String(value());
  return JSON.stringify(value).replaceAll(/,(?=["\d[{tfn-])/g, ", ").replaceAll(/":(?=\S)/g, '": ');
}

const raw = (text: string) => () => text;
const string = (pattern: string) => ({ type: "string", pattern });

Deno.test("JSON schema keywords: look-ahead and look-behind in patterns match exactly", () =>
  checkRows([
    [string("^(?!-)[a-z-]+(?<!-)$"), ["a", "a-b"], ["-a", "a-", ""]],
    [string("^(?=.*[a-z])(?=.*\\d).{3,5}$"), ["a1b", "12c45"], ["abc", "123", "a1", "a1cdef"]],
    [string("^(?:(?!--).)*$"), ["", "a-b"], ["a--b"]],
    [string("^(?!(?:con|nul)$)\\w+$"), ["cone", "x"], ["con", "nul"]],
    [string("a(?!b)"), ["a", "ac", "aba"], ["ab", "b"]],
    [string("(?<!x)y|z"), ["y", "xz", "xyy"], ["xy", "x"]],
    [string("^(?!\\.)(?!.*\\.\\.)[a-z.]+@[a-z]+$"), ["a.b@c"], [".a@c", "a..b@c"]],
  ]));

Deno.test("keywords: patterns support word boundaries, ignored case and named groups", () =>
  checkRows([
    [string("\\bcat\\b"), ["cat", "a cat!"], ["cats", "concat"]],
    [string("^a\\Bb$"), ["ab"], ["a b"]],
    [string("(?i)^yes|no$"), ["YES", "yesterday", "No"], ["si"]],
    [string("(?i)\\bid\\b"), ["ID", "an Id."], ["idea"]],
    [string("^(?<year>\\d{4})-(?<month>\\d\\d)$"), ["2026-11"], ["26-11"]],
  ]));

Deno.test("keywords: uniqueItems lists the values of an enum in every order", () =>
  checkRows([
    [
      { type: "array", items: { enum: ["a", "b", 3] }, uniqueItems: true, minItems: 1 },
      [["a"], ["b", "a"], [3, "a", "b"]],
      [[], ["a", "a"], ["c"], ["a", "b", "a"]],
    ],
    [{ type: "array", items: { type: "boolean" }, uniqueItems: true }, [[], [true, false]], [[true, true]]],
    [{ type: "array", items: { $ref: "#/$defs/c" }, uniqueItems: true, $defs: { c: { enum: [1, 2] } } }, [[
      2,
      1,
    ]], [[1, 1]]],
    [{ type: "array", uniqueItems: true, maxItems: 1 }, [[], [7]], [[7, 7]]],
  ]));

Deno.test("keywords: propertyNames restricts names to an enum, a pattern, a format or a length", () =>
  checkRows([
    [
      { type: "object", propertyNames: { enum: ["a", "b"] }, additionalProperties: { type: "integer" } },
      [{}, { a: 1 }, { a: 1, b: 2 }],
      [{ c: 1 }, { a: "x" }],
    ],
    [
      { type: "object", propertyNames: { pattern: "^x-(?!y)" }, additionalProperties: { type: "null" } },
      [{}, { "x-a": null }],
      [{ a: null }, { "x-y": null }],
    ],
    [{ type: "object", propertyNames: { minLength: 2, maxLength: 3 } }, [{ ab: 1 }, { abc: [] }], [{ a: 1 }, {
      abcd: 1,
    }]],
    [{ type: "object", propertyNames: { format: "uuid" } }, [{}], [{ a: 1 }]],
    [{ type: "object", properties: { a: {}, b: {} }, propertyNames: { const: "b" } }, [{ b: 1 }], [{ a: 1 }, {
      c: 1,
    }]],
    [{ type: "object", propertyNames: { type: "string", description: "any" } }, [{ x: 1 }], []],
  ]));

Deno.test("keywords: not excludes constants, types, a pattern and a property", () =>
  checkRows([
    [{ type: "string", not: { enum: ["a", "bc"] } }, ["", "b", "abc"], ["a", "bc"]],
    [{ type: "integer", not: { const: 0 } }, [-1, 1, 10], [0]],
    [{ type: "number", not: { enum: [0, 2.5] } }, [1, 2.4, -3], [0, 2.5]],
    [{ type: ["string", "null"], not: { const: null } }, ["x"], [null]],
    [{ type: "boolean", not: { const: true } }, [false], [true]],
    [{ not: { type: ["null", "object"] } }, [1, "x", [], true], [null, {}]],
    [{ enum: ["a", "b", 3], not: { const: "b" } }, ["a", 3], ["b"]],
    [{ type: "string", not: { pattern: "^\\s*$" } }, [" a"], ["", "  "]],
    [{ type: "object", not: { required: ["a"] } }, [{}, { b: 1 }], [{ a: 1 }]],
    [{ not: { const: "x", type: "integer" } }, ["x"], []],
    [{ type: "object", properties: { never: { not: {} }, a: {} } }, [{ a: 1 }], [{ never: 1 }]],
  ]));

Deno.test("JSON schema keywords: numbers may have bounds of 64 bits and a decimal multipleOf", () =>
  checkRows([
    [
      { type: "integer", minimum: 0, maximum: 9223372036854775807 },
      [raw("9223372036854775807"), 0],
      [-1, raw("9223372036854775808")],
    ],
    [{ type: "integer", minimum: -9223372036854775808, maximum: -(2 ** 60) }, [raw("-1152921504606846976")], [
      -1,
    ]],
    [{ type: "integer", minimum: 0, maximum: 18446744073709551615 }, [7, raw("9223372036854775807")], []],
    [{ type: "number", multipleOf: 0.01 }, [1, 1.5, -0.07, 19.99], [0.001]],
    [{ type: "number", multipleOf: 0.05, minimum: 0, maximum: 1 }, [0.15, 1], [0.01, 1.05]],
  ]));

Deno.test("JSON schema keywords: an integer without bounds has at most 16 digits", () =>
  checkRows([
    [{ type: "integer" }, [9007199254740991, -7], [raw("77777777777777777"), raw("-77777777777777777")]],
    [{ type: "integer", minimum: 5 }, [5, 9007199254740991], [4, raw("77777777777777777")]],
    [{ type: "array", maxItems: 1e20, items: { type: "integer", maximum: 3 } }, [[3]], [[4]]],
  ]));

Deno.test("JSON schema keywords: numbers in tool arguments have a bounded number of decimals, at any depth", () =>
  checkRows([
    [{ type: "number" }, [1.5, 0.123456789, -3], [raw("0.1234567891"), raw("1e5"), raw("77777777777777777")]],
    [{ type: "object", properties: { a: {} } }, [{ a: [{ b: 1.5 }] }], [raw('{"a": [{"b": 1e5}]}')]],
    [{ type: "array" }, [[1, ["x"]]], [raw("[1e5]")]],
  ], { closed: true }));

Deno.test("keywords: an unknown format is an annotation, and a known one applies to strings only", () =>
  checkRows([
    [{ type: "string", format: "iri-or-whatever" }, ["x"], [1]],
    [{ type: "integer", format: "int32" }, [5], ["5"]],
    [{ type: "integer", format: "date" }, [5], []],
    [{ type: ["string", "integer"], format: "date" }, ["2026-11-28", 3], ["x"]],
  ]));

Deno.test("keywords: null in place of a keyword's value means that the keyword is absent", () =>
  checkRows([
    [{ type: "string", enum: null, pattern: null }, ["x"], [1]],
    [{ type: "object", required: null, properties: null }, [{}, { a: 1 }], []],
    [{ const: null }, [null], [1]],
  ]));

Deno.test("JSON schema keywords: objects in tool arguments have no further properties, unless several schemas describe them", () =>
  checkRows([
    [{ type: "object", properties: { a: { type: "object", properties: { b: {} } } } }, [{ a: { b: 1 } }], [{
      c: 1,
    }, { a: { c: 1 } }]],
    [{ type: "object", properties: { a: {} }, additionalProperties: true }, [{ b: 1 }], []],
    [{ type: "object", properties: { a: {} }, required: ["a", "b"] }, [raw('{"b": 2, "a": 1}')], [{ a: 1 }]],
    [
      {
        type: "object",
        properties: { a: { type: "null" } },
        allOf: [{ properties: { b: { type: "null" } } }],
      },
      [{ b: null, a: null }],
      [{ a: 1 }],
    ],
    [
      { type: "object", properties: { a: {}, b: {} }, anyOf: [{ required: ["a"] }, { required: ["b"] }] },
      [{ a: 1 }, { b: 1 }],
      [{}, { a: 1, c: 1 }],
    ],
    [
      {
        type: "object",
        allOf: [{ $ref: "#/$defs/base" }, { properties: { b: { type: "null" } } }],
        $defs: { base: { type: "object", properties: { a: { type: "null" } } } },
      },
      [{ a: null, b: null }],
      [],
    ],
    [{ type: "object", properties: { a: {} }, unevaluatedProperties: false }, [{ a: 1 }], [{ b: 1 }]],
    [{ type: "object", properties: { a: {}, b: {} }, minProperties: 1 }, [{ a: 1 }, { a: 1, b: 2 }], [{}]],
  ], { closed: true }));

Deno.test("JSON schema keywords: objects in a response format may have further properties, as JSON Schema says", () =>
  checkRows([[{ type: "object", properties: { a: { type: "null" } } }, [{ a: null, b: 1 }], []]]));

/** Schemas that only tools may have, with the keywords that are loosened, and a value that breaks one. */
const LOOSENED:
  readonly (readonly [schema: Record<string, unknown>, keywords: readonly string[], value: unknown])[] = [
    [{ properties: { a: { contains: { const: 1 }, type: "array" } } }, ["/properties/a/contains"], {
      a: [2],
    }],
    [{ properties: { a: {} }, if: { required: ["a"] }, then: false }, ["/if", "/then"], { a: 1 }],
    [{ properties: { a: {}, b: {} }, dependentRequired: { a: ["b"] } }, ["/dependentRequired"], { a: 1 }],
    [{ properties: { a: string("(x)\\1") } }, ["/properties/a/pattern"], { a: "y" }],
    [{ properties: { a: { type: "number", multipleOf: 0.07 } } }, ["/properties/a/multipleOf"], { a: 1 }],
    [{ properties: { a: { type: "array", uniqueItems: true } } }, ["/properties/a/uniqueItems"], {
      a: [1, 1],
    }],
    [{ properties: { a: { $ref: "https://example.org/a.json" } } }, ["/properties/a/$ref"], { a: 1 }],
    [{ properties: { a: { $ref: "#/$defs/none" } } }, ["/properties/a/$ref"], { a: 1 }],
    [{ properties: { a: { type: "any" }, b: 5 }, required: "a" }, [
      "/properties/a/type",
      "/properties/b",
      "/required",
    ], { a: 1 }],
    [{ properties: { a: {} }, required: ["b"], additionalProperties: false }, ["/required"], { a: 1 }],
    [
      { properties: { a: { oneOf: [{ type: "integer" }, { type: "number" }] } } },
      ["/properties/a/oneOf"],
      { a: 1 },
    ],
    [
      {
        properties: { a: { type: "object", patternProperties: { "^x": { const: 1 }, "y$": { const: 2 } } } },
      },
      [""],
      { a: { z: 3 } },
    ],
  ];

Deno.test("loosened schemas: a keyword that cannot be enforced is reported once and counted, and refused in a strict tool", async () => {
  const told: LoosenedSchema[] = [];
  const grammars = createGrammars(byteTokenizer, [], { onLoosened: (schema) => told.push(schema) });
  let count = 0;
  for (const [i, [schema, keywords, value]] of LOOSENED.entries()) {
    const strict: Constraint = { kind: "json_schema", schema: { type: "object", ...schema }, closed: true };
    const loose = { ...strict, looseFor: `f${i}` };
    const grammar = await grammars.compile(loose);
    assert(takes(grammar, written(value)), written(value));
    assert(!takes(grammar, "1"), "arguments are objects");
    assertEquals(told.at(-1), { tool: `f${i}`, keywords });
    count += keywords.length;
    assertEquals(grammars.loosened, count);
    await grammars.compile(loose);
    assertEquals(told.length, i + 1);
    await assertRejects(() => grammars.compile(strict), ConstraintError);
  }
  grammars.close();
});

Deno.test("loosened schemas: of several tools, only the one whose schema llguidance refuses is loosened", async () => {
  const told: LoosenedSchema[] = [];
  const grammars = createGrammars(byteTokenizer, [], { onLoosened: (schema) => told.push(schema) });
  const part = (tool: string, schema: Record<string, unknown>): Constraint => {
    return { kind: "json_schema", schema: { type: "object", ...schema }, closed: true, looseFor: tool };
  };
  const label = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
  const domain = `^(?:${label}\\.)+[a-z0-9][a-z0-9-]{0,61}[a-z0-9]$`;
  const grammar = await grammars.compile({
    kind: "lark",
    grammar: 'start: "a" @a | "b" @b',
    parts: {
      a: part("first", { properties: { x: { type: "integer", maximum: 3 } } }),
      b: part("second", {
        properties: { x: { ...string(domain), minLength: 1, maxLength: 253 } },
        required: ["x"],
      }),
    },
  });
  assertEquals(told, [{ tool: "second", keywords: ["/properties/x/minLength", "/properties/x/maxLength"] }]);
  assert(takes(grammar, 'a{"x": 3}') && !takes(grammar, 'a{"x": 4}'));
  assert(takes(grammar, 'b{"x": "a.de"}') && !takes(grammar, 'b{"x": "de"}'));
  grammars.close();
});

Deno.test("loosened schemas: a bound that no answer can meet is refused in tools too", async () => {
  const grammars = createGrammars(byteTokenizer);
  for (
    const inner of [
      { type: "array", minItems: 1e12 },
      { type: "string", minLength: 1e12 },
      { type: "integer", minimum: 5, maximum: 4 },
      { type: "array", items: { enum: ["a"] }, uniqueItems: true, minItems: 2 },
    ]
  ) {
    const schema = { type: "object", properties: { a: inner }, required: ["a"] };
    for (const use of [{}, { closed: true, looseFor: "f" }]) {
      await assertRejects(() => grammars.compile({ kind: "json_schema", schema, ...use }), ConstraintError);
    }
  }
  grammars.close();
});

Deno.test('loosened schemas: a keyword is loosened although the refusal quotes a text such as "no answer"', async () => {
  const told: LoosenedSchema[] = [];
  const grammars = createGrammars(byteTokenizer, [], { onLoosened: (schema) => told.push(schema) });
  const name = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
  const pattern = `^(?:(?:no answer|unsatisfiable|${name})\\.)+[a-z0-9][a-z0-9-]{0,61}[a-z0-9]$`;
  const schema = { type: "object", properties: { a: { type: "string", pattern, maxLength: 253 } } };
  await grammars.compile({ kind: "json_schema", schema, looseFor: "f" });
  assertEquals(told, [{ tool: "f", keywords: ["/properties/a/maxLength"] }]);
  grammars.close();
});

Deno.test("JSON schema keywords: schemas as pydantic and zod write them are enforced completely", async () => {
  const told: LoosenedSchema[] = [];
  const grammars = createGrammars(byteTokenizer, [], { onLoosened: (schema) => told.push(schema) });
  const $defs = {
    Unit: { enum: ["C", "F"], title: "Unit", type: "string" },
    Place: {
      properties: { name: { title: "Name", type: "string" }, zip: { pattern: "^\\d{5}$", type: "string" } },
      required: ["name"],
      title: "Place",
      type: "object",
    },
  };
  const pydantic = {
    $defs,
    type: "object",
    properties: {
      unit: { allOf: [{ $ref: "#/$defs/Unit" }], default: "C" },
      place: { anyOf: [{ $ref: "#/$defs/Place" }, { type: "null" }], default: null },
      days: { type: "array", items: { type: "integer", exclusiveMinimum: 0 }, uniqueItems: false },
      extra: { additionalProperties: { type: "number" }, type: "object" },
      price: {
        anyOf: [{ type: "number" }, { type: "string", pattern: "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$" }],
      },
    },
    required: ["unit"],
  };
  const email =
    "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$";
  const zod = {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties: {
      id: { type: "integer", minimum: -9007199254740991, maximum: 9007199254740991 },
      mail: { type: "string", pattern: email },
      kind: {
        oneOf: [{ type: "object", properties: { t: { const: "a" } }, required: ["t"] }, { type: "null" }],
      },
      map: { type: "object", propertyNames: { type: "string", enum: ["x", "y"] }, additionalProperties: {} },
      never: { not: {} },
    },
    required: ["id"],
    additionalProperties: false,
  };
  const rows: readonly Row[] = [
    [
      pydantic,
      [{ unit: "C", place: { name: "Bonn", zip: "53111" }, days: [3] }, {
        unit: "F",
        place: null,
        price: "1.5",
      }],
      [{ unit: "K" }, { unit: "C", place: { name: "Bonn", zip: "5" } }, { unit: "C", price: "+" }, {
        unit: "C",
        other: 1,
      }],
    ],
    [
      zod,
      [{ id: 1, mail: "a.b@c.de", kind: { t: "a" }, map: { y: 1 } }, { id: -5, kind: null }],
      [{ id: 1, mail: "a..b@c.de" }, { id: 1, map: { z: 1 } }, { id: 1, never: 1 }],
    ],
  ];
  for (const [schema, accepted, refused] of rows) {
    const grammar = await grammars.compile({ kind: "json_schema", schema, closed: true, looseFor: "f" });
    for (const value of accepted) assert(takes(grammar, written(value)), written(value));
    for (const value of refused) assert(!takes(grammar, written(value)), written(value));
  }
  assertEquals(told, []);
  grammars.close();
});
