import { type Drafter, joinDrafter } from "../../architectures/drafters/drafter.ts";
import { readBytes } from "../../gguf/byte_source.ts";
import { GgufError, quote } from "../../gguf/errors.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { checkFit, readIn } from "./fit.ts";
import type { OpenedDrafter } from "./types.ts";

/** Name of the tensor that maps the drafter's tokens to the model's tokens. */
const TOKENS = "d2t";

/** Opens a drafter that reads hidden rows of the model's layers. It may have its own vocabulary. */
export async function openRowDrafter(
  file: GgufFile,
  model: GgufFile,
  read: (file: GgufFile, model: GgufFile, tokens?: number) => Promise<Drafter>,
): Promise<OpenedDrafter> {
  const own = file.integers.get(TOKENS);
  const description = await readIn(file, () => read(file, model, own?.length));
  const { common, tokenizer } = await checkFit(file, model, description);
  return {
    file,
    description,
    joined: joinDrafter(model, file),
    tokenizer,
    tokens: own && await readIn(file, () => readTokens(file, common)),
  };
}

/** Returns the model's token for each token of the drafter. Throws GgufError for tokens that are not below `limit`. */
async function readTokens(file: GgufFile, limit: number): Promise<Int32Array> {
  const { path, offset, length } = file.integers.get(TOKENS)!;
  await using source = await file.open(path);
  const bytes = await readBytes(source, offset, length * BigInt64Array.BYTES_PER_ELEMENT);
  const tokens = new BigInt64Array(bytes.buffer);
  const wrong = tokens.find((token) => token < 0n || token >= BigInt(limit));
  if (wrong === undefined) return Int32Array.from(tokens, Number);
  const detail = `must have only tokens below ${limit} (got ${wrong})`;
  throw new GgufError("GGUF_DATA", detail, { field: `tensor ${quote(TOKENS)}` });
}
