import { CODE_OF_BYTE } from "../../engine/tokenizer/byte_codes.ts";
import type { SynthFile } from "./file.ts";

/** A chat template, and the marks in prompts and answers. Marks are separate tokens after the others. */
export interface Chat {
  readonly template: string;
  readonly marks: readonly string[];
  readonly words?: Words;
}

/** A byte-level BPE, in GGUF's terms. */
export interface Words {
  readonly pre: string;
  readonly tokens: readonly string[];
  readonly merges: readonly string[];
  /** Control tokens among `tokens`. The last one ends an answer. */
  readonly controls: readonly string[];
}

const BYTES = Array.from(CODE_OF_BYTE, (code) => String.fromCharCode(code));
const END = "<|endoftext|>";
/** Default tokens: bytes, one control token and one merge. */
const SMALL: Words = { pre: "default", tokens: [...BYTES, END, "th"], merges: ["t h"], controls: [END] };

/** Writes the tokenizer: SMALL or the chat's words, its marks, then unused tokens. */
export function describeTokens({ sink }: SynthFile, vocabulary: number, chat?: Chat): void {
  const words = chat?.words ?? SMALL;
  const tokens = [...words.tokens];
  const types: number[] = tokens.map((token) => words.controls.includes(token) ? 3 : 1);
  for (const mark of chat?.marks ?? []) {
    tokens.push(mark);
    types.push(4);
  }
  for (let i = tokens.length; i < vocabulary; i++) {
    tokens.push(`<unused${i}>`);
    types.push(5);
  }
  const end = tokens.indexOf(words.controls.at(-1)!);
  sink.set("tokenizer.ggml.model", "STRING", "gpt2");
  sink.set("tokenizer.ggml.pre", "STRING", words.pre);
  sink.array("tokenizer.ggml.tokens", "STRING", tokens);
  sink.array("tokenizer.ggml.token_type", "INT32", types);
  sink.array("tokenizer.ggml.merges", "STRING", words.merges);
  sink.set("tokenizer.ggml.bos_token_id", "UINT32", end);
  sink.set("tokenizer.ggml.eos_token_id", "UINT32", end);
  sink.set("tokenizer.ggml.add_bos_token", "BOOL", false);
  if (chat) sink.set("tokenizer.chat_template", "STRING", chat.template);
}
