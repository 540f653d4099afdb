import { basename, join, resolve } from "@std/path";
import { Fields, isObject, MAX_TOKENIZER_BYTES, readJson } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";

/** A decoder that ranks. It scores a document by the probability of "yes" against "no" as the next token. */
export interface Ranker {
  /** Token ids of the two words; the word for a relevant document comes first. */
  readonly ids: readonly number[];
  /** Returns the GGUF keys for this architecture. */
  entries(architecture: string): readonly Entry[];
}

const WORDS = ["yes", "no"];
const TEMPLATE_KEY = "tokenizer.chat_template.rerank";
/**
 * Ranking prompt of the model's training. Source: the model card of Qwen3-Reranker, in the form of llama.cpp's files.
 */
const TEMPLATE = "<|im_start|>system\n" +
  "Judge whether the Document meets the requirements based on the Query and the Instruct provided. " +
  'Note that the answer can only be "yes" or "no".<|im_end|>\n' +
  "<|im_start|>user\n" +
  "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n" +
  "<Query>: {query}\n" +
  "<Document>: {document}<|im_end|>\n" +
  "<|im_start|>assistant\n<think>\n\n</think>\n\n";

const NAME = "qwen3-reranker";
const HEADING = /^# *Qwen3-Reranker/im;
const HEADING_BYTES = 64 * 1024;

/**
 * Returns the ranker when the checkpoint is Qwen3-Reranker, else undefined. Its config.json equals a chat
 * model's. As in llama.cpp's converter, the folder's name, the model's name or its card identifies it. Throws
 * ConvertError when the tokenizer lacks the words.
 */
export async function readRanker(folder: string, config: Fields): Promise<Ranker | undefined> {
  if (config.get("model_type") !== "qwen3" || !await isRanker(folder, config)) return undefined;
  const path = join(folder, "tokenizer.json");
  const json = await readJson(path, MAX_TOKENIZER_BYTES);
  const vocabulary = Fields.of(path, isObject(json) ? json : {}).fields("model")?.fields("vocab");
  const ids = WORDS.map((word) => {
    const id = vocabulary?.get(word);
    if (typeof id === "number" && Number.isInteger(id) && id >= 0) return id;
    throw (vocabulary ?? Fields.of(path, {})).refuse(word, "nothing", "a token: the model ranks by it");
  });
  return { ids, entries: (architecture) => rankEntries(architecture) };
}

function rankEntries(architecture: string): Entry[] {
  return [
    entry(`${architecture}.pooling_type`, "UINT32", 4),
    entry(`${architecture}.classifier.output_labels`, "STRING", WORDS),
    entry(TEMPLATE_KEY, "STRING", TEMPLATE),
  ];
}

async function isRanker(folder: string, config: Fields): Promise<boolean> {
  const names = [basename(resolve(folder)), config.get("_name_or_path")];
  if (names.some((name) => typeof name === "string" && name.toLowerCase().includes(NAME))) return true;
  return HEADING.test(await beginningOf(join(folder, "README.md")));
}

/** Returns the file's first bytes as text; empty for a missing file. */
async function beginningOf(path: string): Promise<string> {
  try {
    using file = await Deno.open(path);
    const bytes = new Uint8Array(HEADING_BYTES);
    let length = 0;
    for (let n: number | null; (n = await file.read(bytes.subarray(length))) !== null && n > 0;) length += n;
    return new TextDecoder().decode(bytes.subarray(0, length));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "";
    throw error;
  }
}
