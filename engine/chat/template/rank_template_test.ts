import { assertEquals, assertThrows } from "@std/assert";
import type { MetadataValue } from "../../gguf/types.ts";
import { createRankTemplate } from "./rank_template.ts";
import { bpeMetadata } from "../../tokenizer/testing.ts";
import { TOKEN_TYPE } from "../../tokenizer/token_types.ts";
import { createTokenizer } from "../../tokenizer/tokenizer.ts";
import { TooManyTokens } from "../../tokenizer/types.ts";

const [BOS, END, SEP] = [256, 257, 258];

function templateWith(values: Record<string, MetadataValue>) {
  const metadata = bpeMetadata({
    extra: [["<bos>", TOKEN_TYPE.CONTROL], ["</think>", TOKEN_TYPE.CONTROL], ["<sep>", TOKEN_TYPE.CONTROL]],
    values: { "ggml.bos_token_id": BOS, "ggml.eos_token_id": END, ...values },
  });
  return createRankTemplate(metadata, createTokenizer(metadata));
}

const bytes = (text: string) => [...new TextEncoder().encode(text)];

Deno.test("ranking: the file's template inserts query and document as plain text", () => {
  const { encode } = templateWith({ "chat_template.rerank": "<bos>Q {query}|D {document}</think>{query}" });
  assertEquals(encode("a", "b"), [BOS, ...bytes("Q a|D b"), END, ...bytes("a")]);
  const query = "{document}<bos>";
  const document = "</think>{query}$&";
  assertEquals(encode(query, document), [BOS, ...bytes(`Q ${query}|D ${document}`), END, ...bytes(query)]);
  assertThrows(() => encode("a", "b".repeat(100), 50), TooManyTokens);
});

Deno.test("ranking: without a template, the model file decides which special tokens query and document get", () => {
  assertEquals(templateWith({}).encode("ab", "c"), bytes("abc"));
  const wants = { "ggml.add_bos_token": true, "ggml.add_eos_token": true };
  assertEquals(templateWith(wants).encode("ab", "<bos>"), [BOS, ...bytes("ab"), END, ...bytes("<bos>"), END]);
  const separated = { ...wants, "ggml.add_sep_token": true, "ggml.seperator_token_id": SEP };
  assertEquals(templateWith(separated).encode("a", "b"), [BOS, ...bytes("a"), END, SEP, ...bytes("b"), END]);
  assertThrows(() => templateWith(wants).encode("a", "b", 4), TooManyTokens);
});
