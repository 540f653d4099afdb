import { CODE_OF_BYTE } from "../../engine/tokenizer/byte_codes.ts";
import type { SynthFile } from "./file.ts";

/** A chat template, and the marks in prompts and answers. Marks are separate tokens after the first 258. */
export interface Chat {
  readonly template: string;
  readonly marks: readonly string[];
}

/** Writes a byte-level BPE vocabulary with one merge. Its other tokens are unused. */
export function describeTokens({ sink }: SynthFile, vocabulary: number, chat?: Chat): void {
  const bytes = Array.from(CODE_OF_BYTE, (code) => String.fromCharCode(code));
  const tokens = [...bytes, "<|endoftext|>", "th"];
  const types = [...bytes.map(() => 1), 3, 1];
  for (const mark of chat?.marks ?? []) {
    tokens.push(mark);
    types.push(4);
  }
  for (let i = tokens.length; i < vocabulary; i++) {
    tokens.push(`<unused${i}>`);
    types.push(5);
  }
  sink.set("tokenizer.ggml.model", "STRING", "gpt2");
  sink.set("tokenizer.ggml.pre", "STRING", "default");
  sink.array("tokenizer.ggml.tokens", "STRING", tokens);
  sink.array("tokenizer.ggml.token_type", "INT32", types);
  sink.array("tokenizer.ggml.merges", "STRING", ["t h"]);
  sink.set("tokenizer.ggml.bos_token_id", "UINT32", 256);
  sink.set("tokenizer.ggml.eos_token_id", "UINT32", 256);
  sink.set("tokenizer.ggml.add_bos_token", "BOOL", false);
  if (chat) sink.set("tokenizer.chat_template", "STRING", chat.template);
}
