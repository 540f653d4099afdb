import { assert, assertEquals } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { openGguf } from "../gguf/reader.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";
import { createGrammars } from "./grammars.ts";
import { randomFrom } from "./testing.ts";
import type { Constraint } from "./types.ts";
import { dumps, type Json } from "../chat/formats/testing_writers.ts";

const vocabularies = Deno.env.get("COMPY_VOCAB_DIR") ??
  fromFileUrl(new URL("../../../shared/data/vocab", import.meta.url));
const demo = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));

const vocabulary = (name: string) => join(vocabularies, `${name}.gguf`);
/** The large vocabularies, of 128,000 tokens and more, cost two CPU seconds each. */
const FILES = [
  ...[demo, ...["gpt-2", "llama-spm"].map(vocabulary)].map((path) => ({ path, tier: firstTier })),
  ...["qwen2", "llama-bpe"].map(vocabulary).map((path) => ({ path, tier: fullTier })),
];

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

/** Returns the tokens of a text in the middle of a prompt. */
function tokensOf(tokenizer: Tokenizer, text: string): number[] {
  const before = tokenizer.encode("\n");
  const all = tokenizer.encode("\n" + text);
  // A byte-level vocabulary may join a line break with the text after it, and adds nothing before a text.
  return before.every((token, i) => all[i] === token) && tokenizer.bytes(before[0])[0] !== 10
    ? all.slice(before.length)
    : tokenizer.encode(text);
}

const WORDS = [
  "name",
  "the_value",
  "don't",
  "x1",
  "2024",
  "  two  blanks ",
  "größe",
  "日本語",
  "naïve café",
  "a\nb",
  "\t",
  "emoji 👍🏽 here",
  "CamelCaseName",
  "snake_case_name",
  "http://example.org/a?b=c",
  "'s",
  "I'll",
  "1234567",
  "-",
  "…",
  "\u00a0x",
  "ÀÉÎ",
  "",
  "end ",
  " begin",
  "__init__",
  "a b c",
  "{}",
  "[]",
  '"quoted"',
  "back\\slash",
  "٣٤",
  "中文字符",
  "αβγ",
  "x\n\n\ny",
  "    indented",
];

interface Case {
  readonly constraint: Constraint;
  readonly text: string;
}

/** Returns a random constraint and a text that satisfies it. */
function randomCase(random: () => number): Case {
  const pick = <T>(of: readonly T[]) => of[Math.floor(random() * of.length)];
  const kind = Math.floor(random() * 4);
  if (kind === 0) {
    const choices = Array.from(
      { length: 1 + Math.floor(random() * 4) },
      () =>
        Array.from({ length: 1 + Math.floor(random() * 5) }, () => pick(WORDS)).join(pick([" ", "", "\n"])),
    );
    const kept = choices.filter((choice) => choice !== "");
    if (kept.length > 0) return { constraint: { kind: "choice", choices: kept }, text: pick(kept) };
  }
  if (kind === 1) {
    const head = pick(WORDS) + pick(["", " ", "  ", "\n", ": "]);
    const literal = (text: string) => JSON.stringify(text);
    const [rule, middle, tail] = pick([
      ["/[a-z]+/", "abc", " end"],
      ["/[0-9]+/", "12345", "x"],
      ["/[ ]*x/", "   x", pick(WORDS)],
      // A lexer takes the longest text, so nothing can follow this one.
      ["/(.|\\n)*/", "\n  it's", ""],
    ]);
    const grammar = `start: ${head ? literal(head) : ""} ${rule} ${tail ? literal(tail) : ""}`;
    return { constraint: { kind: "lark", grammar }, text: head + middle + tail };
  }
  const properties: Record<string, unknown> = {};
  const value: Record<string, unknown> = {};
  for (let i = 0; i < 1 + random() * 4; i++) {
    const key = pick(WORDS) + (random() < 0.3 ? i : "");
    const [schema, sample] = pick<[unknown, unknown]>([
      [{ type: "string" }, pick(WORDS)],
      [{ type: "integer" }, Math.floor(random() * 1e6)],
      [{ type: "boolean" }, random() < 0.5],
      [{ const: pick(WORDS) }, undefined],
      [{ enum: ["a", "ab", "abc", 1, 12] }, pick(["a", "ab", "abc", 1, 12])],
      [{ type: "array", items: { type: "integer" }, maxItems: 3 }, [1, 22]],
      [{ type: "null" }, null],
    ]);
    properties[key] = schema;
    value[key] = sample === undefined ? (schema as { const: unknown }).const : sample;
  }
  const schema = {
    type: "object",
    properties,
    required: Object.keys(properties),
    additionalProperties: false,
  };
  return { constraint: { kind: "json_schema", schema }, text: dumps(value as Json) };
}

for (const { path, tier } of FILES) {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const found = exists(path);
  tier.test({
    name: `forced tokens: match the tokens of ${name} for the whole text${
      found ? "" : " (skipped: no such file)"
    }`,
    ignore: !found,
    async fn() {
      const tokenizer = createTokenizer((await openGguf(path)).metadata);
      const grammars = createGrammars(tokenizer);
      const random = randomFrom(7);
      let forcedTokens = 0, all = 0;
      for (let i = 0; i < 60; i++) {
        const { constraint, text } = randomCase(random);
        const expected = tokensOf(tokenizer, text);
        const matcher = (await grammars.compile(constraint)).matcher();
        for (let at = 0; at < expected.length;) {
          const forced = matcher.forced();
          const told = `${JSON.stringify(constraint)} ${JSON.stringify(text)} at token ${at}`;
          assertEquals(forced, expected.slice(at, at + forced.length), told);
          const next = forced.length > 0 ? forced : [expected[at]];
          const [mask] = await grammars.masks([matcher]);
          assert((mask[next[0] >> 5] >>> (next[0] & 31) & 1) === 1, `${told}: the mask forbids what comes`);
          for (const token of next) assert(matcher.consume(token), told);
          at += next.length;
          forcedTokens += forced.length;
        }
        all += expected.length;
        assert(matcher.mayEnd, JSON.stringify(text));
        matcher.close();
      }
      assert(forcedTokens > all / 4, `only ${forcedTokens} of ${all} tokens were forced`);
      grammars.close();
    },
  });
}
