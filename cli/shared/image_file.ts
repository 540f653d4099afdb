import { MOST_IMAGE_BYTES } from "../../lib/model.ts";
import { explained } from "../../lib/system_errors.ts";

/**
 * Returns the bytes of an image file. Throws Error for a file that cannot be read or has more bytes than images may
 * have.
 */
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
