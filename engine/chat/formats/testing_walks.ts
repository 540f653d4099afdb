import { assert } from "@std/assert";
import type { Grammars, Matcher } from "../../grammar/types.ts";
import { put, type TestModel } from "../testing.ts";
import type { ChatPlan } from "../types.ts";
import { M3_TOKEN } from "./testing_writers.ts";

/** Test answers of random tokens: the hardest model for a grammar of tool calls. */

/** Closing tags of formats whose texts end in another way. */
const TAGS: Readonly<Record<string, readonly string[]>> = {
  dsml: ["</think>", "</｜DSML｜parameter>\n"],
  "minimax-m3": ["</mm:think>", ...["city", "query", "item", "from"].map((name) => `${M3_TOKEN}</${name}>`)],
};

/** Draws random tokens that the grammar allows, and prefers tokens that close structures. */
export async function walk(
  grammars: Grammars,
  { form, tokenizer }: TestModel,
  matcher: Matcher,
  random: (n: number) => number,
  most = 500,
): Promise<{ tokens: number[]; finished: boolean }> {
  const closing = new Set([...'"}])>/,'].map((unit) => tokenizer.encode(unit)[0]));
  // Texts that close structures and that random characters would never spell.
  const tags = TAGS[form.toolFormat] ?? ["\n</parameter>\n", "</think>", "<tool_call>", "</arg_value>"];
  const endings = tags.map((text) => tokenizer.encode(text, { parseSpecial: true }));
  const tokens: number[] = [];
  const take = (token: number) => {
    assert(
      matcher.consume(token),
      `token ${token} is refused after ${tokenizer.decode(tokens, { special: true })}`,
    );
    tokens.push(token);
  };
  while (tokens.length < most) {
    for (const token of matcher.forced()) take(token);
    if (matcher.complete) return { tokens, finished: true };
    if (random(12) === 0) {
      for (const token of endings[random(endings.length)]) {
        if (!matcher.consume(token)) break;
        tokens.push(token);
      }
      if (matcher.complete) return { tokens, finished: true };
    }
    const [mask] = await grammars.masks([matcher]);
    const allowed = Array.from({ length: tokenizer.vocabSize }, (_, token) => token)
      .filter((token) => (mask[token >> 5] >>> (token & 31) & 1) === 1);
    assert(allowed.length > 0, "nothing may follow");
    const preferred = allowed.filter((token) =>
      form.markers.has(token) || closing.has(token) || tokenizer.endTokens.has(token)
    );
    const choices = preferred.length > 0 && random(3) === 0 ? preferred : allowed;
    const token = choices[random(choices.length)];
    if (tokenizer.endTokens.has(token)) {
      assert(matcher.mayEnd, "the mask has an end token, and the answer may not end");
      return { tokens, finished: true };
    }
    take(token);
  }
  return { tokens, finished: false };
}

/** Returns the parts of an answer, read from its tokens. */
export function read({ tokenizer }: TestModel, plan: ChatPlan, tokens: readonly number[]) {
  const reader = plan.reader();
  const decoder = tokenizer.streamDecoder({ continuation: true });
  const parts = tokens.flatMap((token) =>
    plan.markers.has(token) ? reader.marker(token) : reader.text(decoder.push(token))
  );
  return put([...parts, ...reader.text(decoder.end()), ...reader.end()]);
}
