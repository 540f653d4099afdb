import type { Metadata } from "../../gguf/types.ts";
import { TOKEN_TYPE } from "../token_types.ts";
import type { Vocabulary } from "../vocabulary.ts";

/**
 * Special tokens that remove white space beside them. GGUF has no key for them. As in llama.cpp, they are recognised by
 * the model's name, architecture and pre-tokenizer.
 */
export interface Strips {
  /** Returns the text between two tokens without the white space that they remove; undefined: no token on that side. */
  strip(text: string, before: number | undefined, after: number | undefined): string;
}

const MASK_PRE_TOKENIZERS = ["jina-v2-de", "jina-v2-es", "jina-v2-code"];
const MASK_ARCHITECTURES = ["nomic-bert-moe", "jina-bert-v3"];
/** Phi-3's special tokens that keep the white space after them; all others remove it. */
const PHI3_KEEP = ["<unk>", "<s>", "<|endoftext|>"];

/** Returns whether the C locale counts the character as white space. */
function isSpace(code: number): boolean {
  return code === 0x20 || (code >= 0x09 && code <= 0x0d);
}

/** Returns the tokens that remove white space beside them. */
export function stripsOf(vocabulary: Vocabulary, metadata: Metadata): Strips {
  const text = (key: string) => metadata.has(key) ? metadata.getString(key) : "";
  const named = (key: string, parts: readonly string[]) => parts.some((part) => text(key).includes(part));
  const name = text("general.name").toLowerCase();
  const before = new Set<number>();
  const after = new Set<number>();
  const add = (token: string, to: Set<number>) => {
    const id = vocabulary.ids.get(token);
    if (id !== undefined) to.add(id);
  };
  if (
    named("tokenizer.ggml.pre", MASK_PRE_TOKENIZERS) || named("general.architecture", MASK_ARCHITECTURES)
  ) {
    add("<mask>", before);
  } else if (name.includes("phi-3") || name.includes("phi3")) {
    for (const [id, type] of vocabulary.types.entries()) {
      const special = type === TOKEN_TYPE.CONTROL || type === TOKEN_TYPE.USER_DEFINED ||
        type === TOKEN_TYPE.UNKNOWN;
      if (special && !PHI3_KEEP.includes(vocabulary.tokens[id])) after.add(id);
    }
    add("</s>", after);
  } else if (name.includes("modern-bert")) {
    add("[MASK]", before);
  }
  return {
    strip(text, left, right) {
      let start = 0;
      let end = text.length;
      if (left !== undefined && after.has(left)) {
        while (start < end && isSpace(text.charCodeAt(start))) start++;
      }
      if (right !== undefined && before.has(right)) {
        while (end > start && isSpace(text.charCodeAt(end - 1))) {
          end--;
        }
      }
      return text.slice(start, end);
    },
  };
}
