import { joinDrafter } from "../../architectures/drafters/drafter.ts";
import { readEagle3 } from "../../architectures/drafters/eagle3.ts";
import { readBytes } from "../../gguf/byte_source.ts";
import { GgufError, quote } from "../../gguf/errors.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { checkFit, readIn } from "./fit.ts";
import type { OpenedDrafter } from "./types.ts";

/** Name of the tensor that maps the drafter's tokens to the model's tokens. */
const TOKENS = "d2t";

/** Opens an EAGLE-3 drafter. */
export async function openEagle3(file: GgufFile, model: GgufFile): Promise<OpenedDrafter> {
  const own = file.integers.get(TOKENS);
  const description = await readIn(file, readEagle3(file, model, own?.length));
  const common = checkFit(file, model, description);
  const tokens = own && await readTokens(file);
  const wrong = tokens?.find((token) => token < 0n || token >= BigInt(common));
  if (wrong !== undefined) {
    const detail = `must have only tokens below ${common} (got ${wrong})`;
    throw new GgufError("GGUF_DATA", detail, { field: `tensor ${quote(TOKENS)} of ${quote(file.path)}` });
  }
  return { description, joined: joinDrafter(model, file), tokens: tokens && Int32Array.from(tokens, Number) };
}

async function readTokens(file: GgufFile): Promise<BigInt64Array> {
  const { path, offset, length } = file.integers.get(TOKENS)!;
  await using source = await file.open(path);
  const bytes = await readBytes(source, offset, length * BigInt64Array.BYTES_PER_ELEMENT);
  return new BigInt64Array(bytes.buffer);
}
