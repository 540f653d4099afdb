import { MOST_IMAGE_BYTES } from "../../lib/model.ts";
import { explained } from "../../lib/system_errors.ts";

/** Returns the bytes of an image's file. Throws for a file that cannot be read or is too large for an image. */
export async function readImageFile(path: string): Promise<Uint8Array<ArrayBuffer>> {
  const what = `Cannot read the image "${path}"`;
  try {
    const { size } = await Deno.stat(path);
    if (size > MOST_IMAGE_BYTES) {
      throw new Error(`${what}: it must have at most ${MOST_IMAGE_BYTES} bytes (got ${size})`);
    }
    return await Deno.readFile(path);
  } catch (error) {
    throw explained(what, error);
  }
}
