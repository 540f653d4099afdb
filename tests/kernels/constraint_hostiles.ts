/** Hostile and very large constraints. Each must be refused or compiled quickly and in little memory. */

import type { Constraint } from "../../engine/grammar/types.ts";

const schema = (value: unknown): Constraint => ({ kind: "json_schema", schema: value });
const regex = (pattern: string): Constraint => ({ kind: "regex", pattern });
const lark = (grammar: string): Constraint => ({ kind: "lark", grammar });
const gbnf = (grammar: string): Constraint => ({ kind: "gbnf", grammar });

function nest(levels: number, wrap: (inner: unknown) => unknown, core: unknown = {}): unknown {
  let result = core;
  for (let i = 0; i < levels; i++) result = wrap(result);
  return result;
}

const many = <T>(count: number, of: (i: number) => T) => Array.from({ length: count }, (_, i) => of(i));
const properties = (count: number, of: (i: number) => unknown) =>
  Object.fromEntries(many(count, (i) => [`property_${i}`, of(i)]));

/** Hostile constraints, created on demand, because some have megabytes. */
export const HOSTILES: readonly (readonly [what: string, make: () => Constraint])[] = [
  ["arrays 10,000 deep", () => schema(nest(10_000, (items) => ({ items })))],
  ["objects 10,000 deep", () => schema(nest(10_000, (a) => ({ properties: { a }, required: ["a"] })))],
  ["allOf 10,000 deep", () => schema(nest(10_000, (a) => ({ allOf: [a] })))],
  ["anyOf 60 deep, two each", () => schema(nest(16, (a) => ({ anyOf: [a, a] }), { type: "string" }))],
  ["a constant 10,000 deep", () => schema({ const: nest(10_000, (a) => [a]) })],
  ["a constant 60 deep", () => schema({ const: nest(50, (a) => [a]) })],
  ["an enum 10,000 deep", () => schema({ enum: [nest(10_000, (a) => ({ a }))] })],
  ["10 MB of description", () => schema({ description: "x".repeat(10 << 20) })],
  [
    "10 MB of properties",
    () => schema({ properties: properties(100_000, () => ({ type: "string", title: "x".repeat(80) })) }),
  ],
  ["10 MB of enum", () => schema({ enum: many(100_000, (i) => "x".repeat(95) + i) })],
  ["10 MB in one constant", () => schema({ const: "x".repeat(10 << 20) })],
  ["10 MB of allOf", () => schema({ allOf: many(300_000, (i) => ({ minimum: i })) })],
  ["200 kB in one constant", () => schema({ const: "x".repeat(200_000) })],
  [
    "5,000 properties",
    () => schema({ properties: properties(5_000, () => ({ type: "integer" })), additionalProperties: false }),
  ],
  [
    "2,000 optional properties, open",
    () => schema({ type: "object", properties: properties(2_000, () => ({})) }),
  ],
  ["5,000 required", () => schema({ type: "object", required: many(5_000, (i) => `r${i}`) })],
  ["20,000 in an enum", () => schema({ enum: many(20_000, (i) => `v${i}`) })],
  ["a reference to itself", () => schema({ $ref: "#" })],
  [
    "two references in a circle",
    () => schema({ $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } }),
  ],
  [
    "a circle by allOf",
    () => schema({ $defs: { a: { allOf: [{ $ref: "#/$defs/a" }, { minimum: 1 }] } }, $ref: "#/$defs/a" }),
  ],
  [
    "a circle by anyOf",
    () =>
      schema({ $defs: { a: { anyOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/a" }] } }, $ref: "#/$defs/a" }),
  ],
  [
    "a circle with siblings",
    () =>
      schema({
        $defs: { a: { $ref: "#/$defs/b", minimum: 1 }, b: { $ref: "#/$defs/a", maximum: 2 } },
        $ref: "#/$defs/a",
      }),
  ],
  [
    "no end: required child",
    () =>
      schema({
        type: "object",
        properties: { c: { $ref: "#" } },
        required: ["c"],
        additionalProperties: false,
      }),
  ],
  [
    "references that double 25 times",
    () =>
      schema({
        $ref: "#/$defs/d0",
        $defs: Object.fromEntries(many(25, (i) => [
          `d${i}`,
          i === 24 ? { type: "null" } : {
            type: "array",
            prefixItems: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }],
            minItems: 2,
            items: false,
          },
        ])),
      }),
  ],
  [
    "allOf of references that double",
    () =>
      schema({
        $ref: "#/$defs/d0",
        $defs: Object.fromEntries(many(30, (i) => [
          `d${i}`,
          i === 29
            ? { type: "integer" }
            : { allOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }] },
        ])),
      }),
  ],
  [
    "a chain of 2,000 references",
    () =>
      schema({
        $ref: "#/$defs/d0",
        $defs: Object.fromEntries(
          many(2000, (i) => [`d${i}`, i === 1999 ? { type: "null" } : { $ref: `#/$defs/d${i + 1}` }]),
        ),
      }),
  ],
  [
    "a chain of 1,500 references through items",
    () =>
      schema({
        $ref: "#/$defs/d0",
        $defs: Object.fromEntries(
          many(
            1500,
            (i) => [`d${i}`, i === 1499 ? { type: "null" } : { items: { $ref: `#/$defs/d${i + 1}` } }],
          ),
        ),
      }),
  ],
  [
    "trees intersected",
    () =>
      schema({
        allOf: [{ $ref: "#/$defs/t" }, { $ref: "#/$defs/u" }],
        $defs: {
          t: { type: "object", properties: { c: { $ref: "#/$defs/t" } } },
          u: { type: "object", properties: { c: { $ref: "#/$defs/u" } } },
        },
      }),
  ],
  ["a reference to the network", () => schema({ $ref: "http://127.0.0.1:1/schema.json" })],
  ["a reference to a file", () => schema({ $ref: "file:///etc/passwd" })],
  ["a reference to a metaschema", () => schema({ $ref: "https://json-schema.org/draft/2020-12/schema" })],
  ["a reference that is no string", () => schema({ $ref: { $ref: "#" } })],
  ["a reference of bad percents", () => schema({ $ref: "#/%E0%A4%A" })],
  ["lenient asked for", () => schema({ "x-guidance": { lenient: true }, not: {} })],
  ["options that are none", () => schema({ "x-guidance": 5 })],
  ["maxItems 10^15", () => schema({ type: "array", items: { type: "integer" }, maxItems: 1e15 })],
  ["minItems 10^9", () => schema({ type: "array", items: { type: "integer" }, minItems: 1e9 })],
  [
    "minItems 100,000 of prefixes",
    () => schema({ type: "array", prefixItems: many(2_000, () => ({ type: "null" })), minItems: 2_000 }),
  ],
  [
    "maxItems in maxItems in maxItems",
    () =>
      schema(
        nest(8, (items) => ({ type: "array", items, minItems: 1000, maxItems: 1000 }), { type: "null" }),
      ),
  ],
  ["maxLength 10^9", () => schema({ type: "string", maxLength: 1e9 })],
  ["minLength 10^9", () => schema({ type: "string", minLength: 1e9 })],
  ["minLength 10^15", () => schema({ type: "string", minLength: 1e15 })],
  [
    "maxLength 100,000 with a pattern",
    () => schema({ type: "string", maxLength: 100_000, minLength: 50_000, pattern: "(ab|c)*d" }),
  ],
  ["minProperties 10^9", () => schema({ type: "object", minProperties: 1e9 })],
  [
    "maxProperties 10^9",
    () => schema({ type: "object", maxProperties: 1e9, additionalProperties: { type: "null" } }),
  ],
  ["multipleOf 10^-300", () => schema({ type: "number", multipleOf: 1e-300 })],
  [
    "multipleOf of primes",
    () =>
      schema({
        allOf: many(
          12,
          (i) => ({
            multipleOf: [7919, 7907, 7901, 7883, 7879, 7877, 7873, 7867, 7853, 7841, 7829, 7823][i],
          }),
        ),
        type: "integer",
      }),
  ],
  ["multipleOf 2^31 - 1", () => schema({ type: "integer", multipleOf: 2147483647 })],
  ["multipleOf 2^40", () => schema({ type: "integer", multipleOf: 2 ** 40 })],
  ["a range of doubles", () => schema({ type: "number", minimum: -1.7976931348623157e308, maximum: 5e-324 })],
  [
    "a fine range",
    () => schema({ type: "number", exclusiveMinimum: 0.1, exclusiveMaximum: 0.10000000000000002 }),
  ],
  ["pattern (a+)+$", () => schema({ type: "string", pattern: "^(a+)+$" })],
  ["pattern (a|a)*b", () => schema({ type: "string", pattern: "^(a|a|a|aa)*b$" })],
  ["pattern .*a.{20}", () => schema({ type: "string", pattern: ".*a.{20}$" })],
  ["pattern .*a.{2000}", () => schema({ type: "string", pattern: "^.*a.{2000}$" })],
  ["pattern (a?){1000}a{1000}", () => schema({ type: "string", pattern: "^(a?){1000}a{1000}$" })],
  ["pattern repeated 10^9", () => schema({ type: "string", pattern: "^((a{1000}){1000}){1000}$" })],
  [
    "pattern repeated in repeats, open",
    () => schema({ type: "string", pattern: "^(((a{1,100}b?){1,100}c?){1,100}d?){1,100}$" }),
  ],
  [
    "pattern nested 10,000 deep",
    () => schema({ type: "string", pattern: "(".repeat(10_000) + "a" + ")".repeat(10_000) }),
  ],
  [
    "pattern nested 200 deep",
    () => schema({ type: "string", pattern: "(".repeat(200) + "a" + ")*".repeat(200) }),
  ],
  [
    "pattern of unicode classes",
    () => schema({ type: "string", pattern: "^(\\p{L}|\\p{N}|\\p{P}|\\p{S}){50,100}[^\\p{Lu}]{50}$" }),
  ],
  [
    "pattern of 100 kB",
    () => schema({ type: "string", pattern: "^(" + many(10_000, (i) => `word${i}`).join("|") + ")$" }),
  ],
  [
    "pattern intersections",
    () =>
      schema({ allOf: many(12, (i) => ({ pattern: `(a|b)*a(a|b){${i}}$` })), type: "string", maxLength: 40 }),
  ],
  [
    "pattern properties that meet",
    () => schema({ patternProperties: { "a.*": {}, ".*b": {} }, type: "object" }),
  ],
  [
    "500 pattern properties",
    () =>
      schema({
        type: "object",
        patternProperties: Object.fromEntries(many(500, (i) => [`^p${i}_.*x`, { type: "null" }])),
      }),
  ],
  [
    "a oneOf of 300",
    () =>
      schema({
        oneOf: many(
          300,
          (i) => ({
            type: "object",
            properties: { k: { const: i }, v: { type: "string" } },
            required: ["k"],
          }),
        ),
      }),
  ],
  [
    "anyOf times anyOf times anyOf",
    () =>
      schema({
        allOf: many(
          6,
          (j) => ({
            anyOf: many(
              12,
              (i) => ({
                type: "object",
                properties: { [`p${j}_${i}`]: { type: "integer" } },
                required: [`p${j}_${i}`],
              }),
            ),
          }),
        ),
      }),
  ],
  [
    "types of all kinds, 500 deep by turns",
    () =>
      schema(nest(30, (a) => ({ type: ["object", "array", "string"], items: a, additionalProperties: a }))),
  ],
  [
    "a key that is the prototype",
    () =>
      schema(
        JSON.parse(
          '{"properties":{"__proto__":{"type":"null"},"constructor":{"type":"null"}},"required":["__proto__"],"additionalProperties":false}',
        ),
      ),
  ],
  ["halves of surrogate pairs", () => schema({ const: "\ud800", enum: ["\udc00"] })],
  ["nothing is valid", () => schema({ allOf: [{ type: "string" }, { type: "integer" }] })],
  ["false", () => schema(false)],
  ["null", () => schema(null)],
  ["a format of another world", () => schema({ format: "../../etc/passwd" })],
  [
    "hostnames in hostnames",
    () =>
      schema({
        type: "array",
        items: { type: "string", format: "hostname", pattern: "a.*b.*c", minLength: 100 },
        minItems: 3,
      }),
  ],
  ["regex (a+)+b", () => regex("(a+)+b")],
  ["regex .*a.{20}", () => regex("(.|\\n)*a(.|\\n){20}")],
  ["regex .*a.{100000}", () => regex("(.|\\n)*a(.|\\n){100000}")],
  ["regex repeated 10^12", () => regex("(((a{10000}){10000}){10000})")],
  ["regex of 200 kB", () => regex(many(20_000, (i) => `w${i}x?`).join("|"))],
  ["regex nested 50,000 deep", () => regex("(".repeat(50_000) + ")".repeat(50_000))],
  ["regex with a lookahead", () => regex("(?=a)b")],
  ["regex that is not one", () => regex("[")],
  ["regex of nothing", () => regex("[^\\s\\S]")],
  ["100,000 choices", () => ({ kind: "choice", choices: many(100_000, (i) => `choice ${i}`) })],
  ["10,000 choices", () => ({ kind: "choice", choices: many(10_000, (i) => `choice ${i}`) })],
  ["a choice of 200 kB", () => ({ kind: "choice", choices: ["x".repeat(200_000), "y"] })],
  ["lark nested 50,000 deep", () => lark("start: " + "(".repeat(50_000) + '"a"' + ")".repeat(50_000))],
  ["lark maybe 20,000 deep", () => lark("start: " + "[".repeat(20_000) + '"a"' + "]".repeat(20_000))],
  [
    "lark rules in a chain of 20,000",
    () =>
      lark(
        many(20_000, (i) => `${i === 0 ? "start" : "r" + i}: ${i === 19_999 ? '"a"' : "r" + (i + 1)}`).join(
          "\n",
        ),
      ),
  ],
  [
    "lark rules in a chain of 3,000",
    () =>
      lark(
        many(3_000, (i) => `${i === 0 ? "start" : "r" + i}: ${i === 2_999 ? '"a"' : "r" + (i + 1)}`).join(
          "\n",
        ),
      ),
  ],
  [
    "lark terminals in a chain of 10,000",
    () =>
      lark(
        "start: T1\n" + many(10_000, (i) => `T${i + 1}: ${i === 9_999 ? '"a"' : "T" + (i + 2)}`).join("\n"),
      ),
  ],
  [
    "lark terminals that double",
    () =>
      lark("start: T0\n" + many(40, (i) => `T${i}: ${i === 39 ? '"a"' : `T${i + 1} T${i + 1}`}`).join("\n")),
  ],
  [
    "lark rules that double",
    () =>
      lark(
        many(40, (i) => `${i === 0 ? "start" : "r" + i}: ${i === 39 ? '"a"' : `r${i + 1} r${i + 1}`}`).join(
          "\n",
        ),
      ),
  ],
  ["lark left recursion", () => lark('start: start "a" | "b"')],
  ["lark that ends nowhere", () => lark('start: "a" start')],
  ["lark of empties", () => lark("start: a a a a a a a a\na: | b b\nb: | a a")],
  ["lark ambiguity", () => lark('start: e\ne: e e | e e e | "a" | ""')],
  ["lark ambiguity that grows with the answer", () => lark("start: s\ns: /[a-z]/ | s s")],
  ["lark repeats", () => lark('start: (("a"{0,1000}){0,1000}){0,1000}')],
  ["lark repeats of 10^9", () => lark('start: r{1000000000}\nr: "a" | r "b"')],
  ["lark %json, lenient", () => lark('start: %json {"x-guidance": {"lenient": true}, "not": {}}')],
  [
    "lark %json, lenient by escapes",
    () => lark('start: %json {"x-g\\u0075idance": {"lenient": true}, "not": {}}'),
  ],
  ["lark %json 20,000 deep", () => lark("start: %json " + "[".repeat(20_000) + "]".repeat(20_000))],
  ["lark bytes that are no text", () => lark('%llguidance {"allow_invalid_utf8": true}\nstart: /(?s-u:.)*/')],
  ["lark nested lark", () => lark("start: " + "%lark { start: ".repeat(3_000) + '"a"' + " }".repeat(3_000))],
  [
    "lark substrings of 200 kB",
    () => lark(`start: %regex {"substring_chars": ${JSON.stringify("abcdefghij".repeat(20_000))}}`),
  ],
  ["lark a part that there is not", () => lark("start: @missing")],
  ["lark a token that there is not", () => lark("start: <[4000000000]>")],
  ["lark tokens in a list of 10,000", () => lark(`start: <[${many(10_000, (i) => i * 7).join(",")}]>`)],
  [
    "lark a part of itself",
    () => ({ kind: "lark", grammar: "start: @a", parts: { a: lark("start: @b"), b: lark("start: @a") } }),
  ],
  [
    "lark parts 5,000 deep",
    () =>
      nest(
        5_000,
        (inner) => ({ kind: "lark", grammar: "start: @a", parts: { a: inner } }),
        regex("a"),
      ) as Constraint,
  ],
  ["lark negations", () => lark("start: T\nT: " + "~(".repeat(150) + "/a.*b/" + ")".repeat(150))],
  [
    "lark conjunctions",
    () =>
      lark("start: T\nT: " + many(60, (i) => `/.*${String.fromCharCode(97 + (i % 26))}.{${i}}/`).join(" & ")),
  ],
  ["gbnf without a root", () => gbnf('start ::= "a"')],
  ["gbnf repeats of repeats", () => gbnf('root ::= (("a"{1000}){1000}){1000}')],
  ["gbnf repeats of 10^9", () => gbnf('root ::= "a"{1000000000}')],
  [
    "gbnf rules that double",
    () =>
      gbnf(
        many(40, (i) => `${i === 0 ? "root" : "r" + i} ::= ${i === 39 ? '"a"' : `r${i + 1} r${i + 1}`}`).join(
          "\n",
        ),
      ),
  ],
  ["gbnf nested 50,000 deep", () => gbnf("root ::= " + "(".repeat(50_000) + '"a"' + ")".repeat(50_000))],
  ["gbnf left recursion", () => gbnf('root ::= root "a" | "b"')],
  ["gbnf hidden left recursion", () => gbnf('root ::= ws root "a" | "b"\nws ::= " "*')],
  [
    "gbnf rules in a chain of 20,000",
    () =>
      gbnf(
        many(20_000, (i) => `${i === 0 ? "root" : "r" + i} ::= ${i === 19_999 ? '"a"' : "r" + (i + 1)}`).join(
          "\n",
        ),
      ),
  ],
  ["gbnf of 10 MB", () => gbnf("root ::= " + '"aaaaaaaaaa" '.repeat(800_000))],
  ["gbnf unclosed", () => gbnf('root ::= "abc')],
];
