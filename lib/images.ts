import type { Engine, GenerateRequest, PromptImage } from "../engine/mod.ts";
import { refuse } from "./errors.ts";
import type { ImageFile } from "./messages.ts";

/**
 * Decodes images and returns the field of a request that has them, or no field without images. The caller's bytes stay as they are. Throws CompyError invalid_request for another value,
 * EngineError not_supported if the model reads no images, and invalid_request for an image that cannot be read.
 */
export async function readImages(
  engine: Engine,
  images: readonly ImageFile[],
  signal: AbortSignal,
): Promise<Pick<GenerateRequest, "images">> {
  if (images.length === 0) return {};
  const read: PromptImage[] = [];
  for (const image of images) {
    if (!(image instanceof Uint8Array || image instanceof Blob)) {
      refuse("images", "must be an array of Uint8Array or Blob", image);
    }
    const bytes = image instanceof Blob ? new Uint8Array(await image.arrayBuffer()) : new Uint8Array(image);
    read.push(await engine.readImage(bytes, signal));
  }
  return { images: read };
}
