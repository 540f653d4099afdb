import { type Engine, EngineError, finish, type Paced, type PromptImage } from "../../engine/mod.ts";
import { ApiError } from "../core/errors.ts";
import { paced } from "../core/paced.ts";
import { type ChatMessageBody, IMAGE, unreadable, urlOf } from "./messages.ts";

/** Maximum images of one request. */
const MOST_IMAGES = 8;

/**
 * Decodes the images of the user's messages, in order. Throws ApiError 400 for a model that takes no images, and for an
 * image that cannot be read.
 */
export async function readImages(
  engine: Engine,
  messages: readonly ChatMessageBody[],
): Promise<PromptImage[]> {
  const images: PromptImage[] = [];
  for (const [i, { role, content }] of messages.entries()) {
    if (role !== "user" || !Array.isArray(content)) continue;
    for (const [j, part] of content.entries()) {
      if (part.type !== IMAGE) continue;
      const param = `messages[${i}].content[${j}]`;
      if (!engine.model.images) {
        throw new ApiError(400, "unsupported_content", unreadable(IMAGE), { param: `${param}.type` });
      }
      if (images.length === MOST_IMAGES) {
        throw new ApiError(400, "too_many_images", `A request may have at most ${MOST_IMAGES} images`, {
          param,
        });
      }
      images.push(await readOne(engine, urlOf(part), `${param}.${IMAGE}`));
    }
  }
  return images;
}

/** Characters of base64 that are decoded at a time: a multiple of four. */
const CHARACTERS = 2 ** 18;

/** Returns the bytes of the text's base64, which begins at `start`. Throws SyntaxError. */
function* decoded(text: string, start: number): Paced<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(Math.ceil((text.length - start) / 4) * 3);
  let written = 0;
  for (let at = start; at < text.length; at += CHARACTERS) {
    const part = Uint8Array.fromBase64(text.slice(at, at + CHARACTERS));
    bytes.set(part, written);
    written += part.length;
    yield;
  }
  return bytes.slice(0, written);
}

async function readOne(engine: Engine, url: string, param: string): Promise<PromptImage> {
  try {
    return await engine.readImage(await paced(() => finish(decoded(url, url.indexOf(",") + 1))));
  } catch (error) {
    if (error instanceof SyntaxError) {
      throw new ApiError(400, "invalid_image", `Invalid "${param}": it is not base64`, { param });
    }
    if (!(error instanceof EngineError) || error.code !== "invalid_request") throw error;
    throw new ApiError(400, "invalid_image", error.message, { param });
  }
}
