import { assert, assertEquals } from "@std/assert";
import { Random } from "../sampling/random.ts";
import { SuffixIndex } from "./lookup.ts";

/** Returns the draft after a text that grew token by token. */
function draftAfter(text: readonly number[], most = 8): { tokens: number[]; grades: number[] } {
  const tokens = Int32Array.from(text);
  const index = new SuffixIndex(1);
  for (let length = 1; length < text.length; length++) index.draft(tokens, length, most);
  const draft = index.draft(tokens, text.length, most);
  return { tokens: [...draft.tokens], grades: [...draft.grades] };
}

Deno.test("lookup: drafts the tokens after the longest match; of equally long matches the latest counts", () => {
  assertEquals(draftAfter([1, 2, 3, 4, 5, 9, 2, 3], 3), { tokens: [4, 5, 9], grades: [2, 3, 4] });
  assertEquals(draftAfter([1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3], 1), { tokens: [7], grades: [3] });
  assertEquals(draftAfter([2, 3, 7, 2, 3, 8, 5, 2, 3], 1), { tokens: [8], grades: [2] });
});

Deno.test("lookup: a match has at least two tokens, so short texts have no match", () => {
  for (const text of [[1], [1, 1], [1, 2], [1, 2, 3, 1], [4, 2, 3, 5, 2]]) {
    assertEquals(draftAfter(text).tokens, []);
  }
});

Deno.test("lookup: when a copy inserts, replaces or skips tokens, drafts continue at the matching place of the source", () => {
  const source = [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const copy = [...source, 0, 1, 2, 3, 4]; // 5 is next
  assertEquals(draftAfter([...copy, 20], 2), { tokens: [5, 6], grades: [0, 1] });
  assertEquals(draftAfter([...copy, 20, 5], 2), { tokens: [6, 7], grades: [1, 2] });
  assertEquals(draftAfter([...copy, 20, 6], 2), { tokens: [7, 8], grades: [1, 2] });
  assertEquals(draftAfter([...copy, 7], 2), { tokens: [8, 9], grades: [1, 2] });
  assertEquals(draftAfter([...copy, 20, 21], 2).tokens, []); // it is unknown where the copy continues in its source
  assertEquals(draftAfter([...copy, 20, 21, 22, 6], 2).tokens, [7, 8]);
  assertEquals(draftAfter([...copy, 20, 21, 22, 23, 6], 2).tokens, []); // not a copy any more
  assertEquals(draftAfter([...copy, 8], 2), { tokens: [5, 6], grades: [0, 1] }); // too far
  assertEquals(draftAfter([...source, 0, 1, 2, 20], 2).tokens, []); // two tokens are not a copy
});

Deno.test("lookup: continues a repetition beyond the end of the text", () => {
  assertEquals(draftAfter([7, 1, 2, 3, 1, 2, 3], 7).tokens, [1, 2, 3, 1, 2, 3, 1]);
  assertEquals(draftAfter([5, 5, 5], 4).tokens, [5, 5, 5, 5]);
});

Deno.test("lookup: the text may grow by any number of tokens between drafts", () => {
  const random = new Random(3);
  const unit = Array.from({ length: 40 }, () => Math.floor(1000 * random.next()));
  const text = Int32Array.from({ length: 4000 }, (_, i) => unit[i % 40]);
  const index = new SuffixIndex(10);
  for (let length = 10; length < 3900; length += 1 + Math.floor(30 * random.next())) {
    const { tokens } = index.draft(text, length, 32);
    if (length > 42) assertEquals(tokens, text.slice(length, length + 32));
  }
});

Deno.test("lookup: distinguishes tokens with equal hashes", () => {
  const random = new Random(5);
  const text = Int32Array.from({ length: 20_000 }, () => Math.floor(120 * random.next()));
  const index = new SuffixIndex(1);
  for (let length = 100; length < text.length; length += 37) {
    const { tokens, grades } = index.draft(text, length, 1);
    if (tokens.length === 0) continue;
    // The last `grade` tokens must occur earlier, followed by this token.
    const end = text.subarray(length - grades[0], length).join();
    let found = false;
    for (let at = grades[0]; at < length && !found; at++) {
      found = text[at] === tokens[0] && text.subarray(at - grades[0], at).join() === end;
    }
    assert(found);
  }
});
