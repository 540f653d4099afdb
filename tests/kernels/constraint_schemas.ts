/** Seeded JSON schemas that together use every keyword that constraints support. */

/** Schemas with each keyword at least once, and with common mistakes. */
export const SCHEMAS: readonly unknown[] = [
  true,
  {},
  { type: "object" },
  { type: "array" },
  { type: ["string", "null"] },
  { type: ["integer", "boolean", "array"], maxItems: 3, items: { type: "null" } },
  { const: { a: [1, "x", null, true, { b: 2.5 }] } },
  { const: 'quote " backslash \\ line\n tab\t snowman ☃ emoji 👍' },
  { enum: ["red", "green", 3, null, true, [1, 2], { k: "v" }, 1.5, -7] },
  { const: 1.0 },
  { const: 1e3 },
  { const: -0.5 },
  { enum: [0, -1, 1000000, 0.001] },
  { type: "integer", minimum: -5, maximum: 17 },
  { type: "integer", exclusiveMinimum: 0, exclusiveMaximum: 100 },
  { type: "number", minimum: 0, maximum: 1 },
  { type: "number", exclusiveMinimum: -1.5, exclusiveMaximum: 2.25 },
  { type: "number", minimum: 0.1, maximum: 0.3 },
  { type: "number", maximum: -3.75 },
  { type: "number", minimum: 1000 },
  { type: "integer", minimum: 5.5 },
  { type: "integer", multipleOf: 7, minimum: 0, maximum: 10000 },
  { type: "integer", multipleOf: 12 },
  { type: "number", multipleOf: 5, minimum: -100, maximum: 100 },
  { type: "number", multipleOf: 0.5, minimum: 0, maximum: 100 },
  { type: "number", multipleOf: 0.01, minimum: 0, maximum: 100 },
  { type: "number", multipleOf: 2.5 },
  { minimum: 3, maximum: 9 },
  { type: "integer", minimum: -9007199254740991, maximum: 9007199254740991 },
  { type: "string", minLength: 3, maxLength: 5 },
  { type: "string", maxLength: 0 },
  { type: "string", minLength: 2 },
  { type: "string", pattern: "^[a-z]{2,4}$" },
  { type: "string", pattern: "ab+c", maxLength: 12 },
  { type: "string", pattern: "^(foo|bar)", maxLength: 12 },
  { type: "string", pattern: "^\\d{3}-\\w+$", maxLength: 20 },
  { type: "string", pattern: "^a|b$", maxLength: 6 },
  { type: "string", pattern: "^\\s*\\S+\\s?$", maxLength: 10 },
  { type: "string", pattern: "^.{3}$" },
  { type: "string", pattern: "^[^a-z\\s]{1,4}$" },
  { type: "string", pattern: "^[&&b~~\\]\\[-]{1,6}$" },
  { type: "string", pattern: "^\\u0041\\x42[\\u{1F600}-\\u{1F64F}]{2}$" },
  { type: "string", pattern: "^\\p{Lu}\\p{Ll}{1,5}$" },
  { type: "string", pattern: "^[\\D]{2}[\\W]$" },
  { type: "string", pattern: "^(?<year>[0-9]{4})(?:-[0-9]{2})?$" },
  { type: "string", pattern: "^/[a-z]/\\.(js|ts)$" },
  { type: "string", pattern: "^$" },
  { type: "string", format: "date-time" },
  { type: "string", format: "date" },
  { type: "string", format: "time" },
  { type: "string", format: "duration" },
  { type: "string", format: "email", maxLength: 40 },
  { type: "string", format: "hostname" },
  { type: "string", format: "ipv4" },
  { type: "string", format: "ipv6" },
  { type: "string", format: "uri" },
  { type: "string", format: "uuid" },
  { type: "string", format: "date", pattern: "^20" },
  { format: "ipv4" },
  { type: "array", items: { type: "integer" }, minItems: 2, maxItems: 4 },
  { type: "array", prefixItems: [{ type: "string" }, { type: "integer" }], items: false },
  { type: "array", prefixItems: [{ const: 1 }, { const: 2 }], items: { const: 3 }, minItems: 1, maxItems: 5 },
  { type: "array", prefixItems: [{ type: "boolean" }], maxItems: 3 },
  { type: "array", maxItems: 0 },
  {
    $schema: "http://json-schema.org/draft-07/schema#",
    type: "array",
    items: [{ type: "null" }],
    additionalItems: { type: "boolean" },
    maxItems: 4,
  },
  { type: "array", uniqueItems: false, items: { enum: [1, 2] }, maxItems: 3 },
  {
    type: "object",
    properties: { a: { type: "integer" }, b: { type: "string", maxLength: 3 } },
    required: ["b"],
  },
  {
    type: "object",
    properties: { a: { type: "integer" }, b: { type: "null" } },
    additionalProperties: false,
  },
  {
    type: "object",
    properties: { a: { type: "boolean" } },
    additionalProperties: { type: "integer" },
    required: ["a"],
  },
  { type: "object", additionalProperties: { type: "boolean" }, maxProperties: 3 },
  { type: "object", additionalProperties: { type: "boolean" }, minProperties: 1, maxProperties: 3 },
  {
    type: "object",
    properties: { a: {}, b: {}, c: {} },
    required: ["a", "b", "c"],
    additionalProperties: false,
    minProperties: 2,
  },
  {
    type: "object",
    properties: { a: { const: 1 }, b: { const: 2 }, c: { const: 3 } },
    additionalProperties: false,
    maxProperties: 2,
  },
  {
    type: "object",
    patternProperties: { "^n_": { type: "integer" }, "^s_": { type: "string" } },
    additionalProperties: false,
  },
  {
    type: "object",
    properties: { n_a: { maximum: 5, type: "integer" } },
    patternProperties: { "^n_": { type: "integer", minimum: 0 } },
    additionalProperties: { type: "null" },
  },
  {
    type: "object",
    required: ["z", "a"],
    properties: { a: { type: "null" } },
    additionalProperties: { type: "boolean" },
  },
  {
    type: "object",
    properties: { "": { const: 1 }, "a b": { const: 2 }, 'ü"\\': { const: 3 }, __proto__x: { const: 4 } },
    required: [""],
    additionalProperties: false,
  },
  {
    anyOf: [{ type: "string", maxLength: 4 }, { type: "integer" }, {
      type: "array",
      items: { type: "null" },
    }],
  },
  { oneOf: [{ type: "string", maxLength: 4 }, { type: "null" }] },
  {
    oneOf: [{
      type: "object",
      properties: { kind: { const: "a" }, x: { type: "integer" } },
      required: ["kind", "x"],
      additionalProperties: false,
    }, {
      type: "object",
      properties: { kind: { const: "b" } },
      required: ["kind"],
      additionalProperties: false,
    }],
  },
  { oneOf: [{ const: "a" }, { const: "b" }, { type: "integer" }] },
  {
    oneOf: [{ $ref: "#/$defs/cat" }, { $ref: "#/$defs/dog" }],
    $defs: {
      cat: {
        type: "object",
        properties: { kind: { const: "cat" }, lives: { type: "integer" } },
        required: ["kind"],
      },
      dog: {
        type: "object",
        properties: { kind: { enum: ["dog", "puppy"] } },
        required: ["kind"],
        additionalProperties: false,
      },
    },
  },
  { allOf: [{ type: "integer", minimum: 3 }, { maximum: 8 }] },
  {
    allOf: [{ type: "object", properties: { a: { type: "integer" } }, required: ["a"] }, {
      type: "object",
      properties: { b: { type: "null" } },
      required: ["b"],
    }],
  },
  { allOf: [{ type: "string", pattern: "^a" }, { pattern: "z$" }], maxLength: 6 },
  {
    allOf: [{ anyOf: [{ type: "integer" }, { type: "string" }] }, {
      anyOf: [{ type: "string", maxLength: 3 }, { type: "null" }],
    }],
  },
  {
    allOf: [{ type: "object", patternProperties: { "^a": { type: "integer" } } }, {
      type: "object",
      additionalProperties: { type: ["integer", "string"] },
    }],
  },
  {
    allOf: [{ type: "object", properties: { a: { type: "integer" } }, additionalProperties: false }, {
      type: "object",
      properties: { a: { minimum: 3 }, b: { type: "null" } },
    }],
  },
  {
    allOf: [{ type: "array", prefixItems: [{ type: "integer" }], items: { type: "string" } }, {
      items: { type: ["integer", "string"] },
      maxItems: 3,
    }],
  },
  { allOf: [{ type: "integer", multipleOf: 4 }, { multipleOf: 6, minimum: 0, maximum: 500 }] },
  { properties: { a: { type: "integer" } }, required: ["a"] },
  {
    anyOf: [{ required: ["a"] }, { required: ["b"] }],
    type: "object",
    properties: { a: { type: "null" }, b: { type: "null" } },
    additionalProperties: false,
  },
  {
    type: "object",
    properties: { x: { $ref: "#/$defs/n" }, y: { $ref: "#/$defs/l" } },
    required: ["x"],
    additionalProperties: false,
    $defs: {
      n: { type: "integer", minimum: 0 },
      l: { type: "array", items: { $ref: "#/$defs/n" }, maxItems: 3 },
    },
  },
  {
    $ref: "#/definitions/node",
    definitions: {
      node: {
        type: "object",
        properties: {
          value: { type: "integer" },
          next: { anyOf: [{ type: "null" }, { $ref: "#/definitions/node" }] },
        },
        required: ["value", "next"],
        additionalProperties: false,
      },
    },
  },
  {
    type: "object",
    properties: { children: { type: "array", items: { $ref: "#" }, maxItems: 2 } },
    additionalProperties: false,
  },
  { $ref: "#/$defs/a~1b%20c~0d", $defs: { "a/b c~d": { type: "boolean" } } },
  { $ref: "#here", $defs: { x: { $anchor: "here", type: "null" } } },
  {
    $id: "https://example.org/s.json",
    $ref: "https://example.org/s.json#/$defs/a",
    $defs: { a: { enum: ["u", "v"] } },
  },
  { $ref: "#/$defs/a", maximum: 9, $defs: { a: { type: "integer", minimum: 5 } } },
  {
    title: "T",
    description: "D",
    $comment: "C",
    default: 5,
    examples: [1],
    readOnly: true,
    writeOnly: false,
    deprecated: true,
    type: "integer",
    contentMediaType: "x",
    contentEncoding: "base64",
  },
  {
    type: "object",
    properties: {
      type: { const: "x" },
      required: { type: "null" },
      properties: { type: "boolean" },
      $ref: { const: 1 },
    },
    required: ["type", "$ref"],
    additionalProperties: false,
  },
  { type: "string", enum: ["a", "b", 3] },
  { type: "integer", enum: [1, "x", 2.5, 4] },
  { type: "string", const: "exactly", minLength: 3 },
  {
    type: "object",
    properties: {
      name: { type: "string", maxLength: 8 },
      age: { type: "integer", minimum: 0, maximum: 150 },
      email: { type: "string", format: "email" },
      tags: { type: "array", items: { type: "string", maxLength: 4 }, maxItems: 3 },
      address: {
        type: "object",
        properties: { zip: { type: "string", pattern: "^[0-9]{5}$" } },
        required: ["zip"],
        additionalProperties: false,
      },
    },
    required: ["name", "age", "email", "tags", "address"],
    additionalProperties: false,
  },
];

/** Every keyword that the schemas must use. */
export const KEYWORDS = [
  "type",
  "const",
  "enum",
  "anyOf",
  "oneOf",
  "allOf",
  "$ref",
  "$defs",
  "definitions",
  "$anchor",
  "$id",
  "$schema",
  "items",
  "additionalItems",
  "prefixItems",
  "minItems",
  "maxItems",
  "properties",
  "additionalProperties",
  "patternProperties",
  "required",
  "minProperties",
  "maxProperties",
  "minLength",
  "maxLength",
  "pattern",
  "format",
  "minimum",
  "maximum",
  "exclusiveMinimum",
  "exclusiveMaximum",
  "multipleOf",
];

/** A schema with random keywords, at most `depth` deep. */
export function randomSchema(random: () => number, depth = 3): unknown {
  const below = (n: number) => Math.floor(random() * n);
  const pick = <T>(of: readonly T[]) => of[below(of.length)];
  const maybe = <T>(value: T, chance = 0.4) => random() < chance ? value : undefined;
  const inner = () => randomSchema(random, depth - 1);
  const trimmed = (schema: Record<string, unknown>) =>
    Object.fromEntries(Object.entries(schema).filter(([, value]) => value !== undefined));
  const kinds = depth > 0
    ? ["string", "number", "integer", "object", "object", "array", "anyOf", "allOf", "enum", "oneOf", "types"]
    : ["string", "number", "integer", "boolean", "null", "const", "enum"];
  const low = below(40) - 20;
  switch (pick(kinds)) {
    case "string":
      return random() < 0.3
        ? {
          type: "string",
          pattern: pick(["^[a-c]+$", "x", "^\\w{1,3}\\s", "[0-9]$", "^(ab|cd)*$", "\\.[^.]+$"]),
          maxLength: maybe(9, 0.8),
        }
        : random() < 0.3
        ? {
          type: "string",
          format: pick([
            "date",
            "time",
            "ipv4",
            "uuid",
            "date-time",
            "email",
            "hostname",
            "ipv6",
            "uri",
            "duration",
          ]),
        }
        : trimmed({ type: "string", minLength: maybe(below(3)), maxLength: maybe(3 + below(9), 0.8) });
    case "number":
      return trimmed({ type: "number", minimum: maybe(low + random()), maximum: maybe(low + 1 + below(30)) });
    case "integer":
      return trimmed({
        type: "integer",
        minimum: maybe(low),
        exclusiveMaximum: maybe(low + 10 + below(90)),
        multipleOf: maybe(1 + below(9), 0.2),
      });
    case "boolean":
      return { type: "boolean" };
    case "null":
      return { type: "null" };
    case "const":
      return { const: pick<unknown>(["c", 5, null, false, [1], { q: 1 }]) };
    case "enum":
      return { enum: [pick(["a", "b"]), below(9), null, [below(3)], { e: below(3) }].slice(0, 1 + below(5)) };
    case "types":
      return trimmed({
        type: ["string", "integer", "null"].slice(0, 1 + below(3)),
        maxLength: maybe(5),
        minimum: maybe(0),
      });
    case "anyOf":
      return { anyOf: Array.from({ length: 1 + below(3) }, inner) };
    case "oneOf":
      return {
        oneOf: [{ type: "string", maxLength: 3 }, { type: "integer", minimum: low }, {
          type: "array",
          items: inner(),
          maxItems: 2,
        }].slice(below(2)),
      };
    case "allOf":
      return { allOf: [inner(), random() < 0.5 ? inner() : {}] };
    case "array":
      return trimmed({
        type: "array",
        prefixItems: maybe(Array.from({ length: 1 + below(2) }, inner)),
        items: random() < 0.9 ? inner() : undefined,
        minItems: maybe(below(3)),
        maxItems: maybe(2 + below(3), 0.9),
      });
    default: {
      const names = ["a", "b", "c d", "é", "n_x"].filter(() => random() < 0.6);
      return trimmed({
        type: "object",
        properties: Object.fromEntries(names.map((name) => [name, inner()])),
        required: maybe(names.filter(() => random() < 0.6), 0.8),
        patternProperties: maybe({ "^n_": inner() }, 0.15),
        additionalProperties: random() < 0.7 ? false : maybe(inner(), 0.5),
        maxProperties: maybe(names.length + 1, 0.2),
      });
    }
  }
}

/** The names of a schema's keywords, at any depth. */
export function keywordsOf(schema: unknown, found = new Set<string>()): Set<string> {
  if (Array.isArray(schema)) schema.forEach((inner) => keywordsOf(inner, found));
  else if (typeof schema === "object" && schema !== null) {
    for (const [key, value] of Object.entries(schema)) {
      if (KEYWORDS.includes(key)) found.add(key);
      keywordsOf(value, found);
    }
  }
  return found;
}
