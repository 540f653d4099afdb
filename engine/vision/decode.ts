/** Image decoders in a WebAssembly module (rust-images). Only a worker should call them, because decoding blocks. */
import { shipped } from "../../package.ts";
import type { Rgb } from "./resize.ts";
import { MOST_RATIO } from "./scaling.ts";

/** Maximum pixels before scaling: a decoded image takes up to 7 bytes per pixel, and its decoder about as many. */
const MOST_PIXELS = 2 ** 25;

/** The exports of the module, whose build limits its memory. */
interface Decoders {
  readonly memory: WebAssembly.Memory;
  allocate(bytes: number): number;
  decode(bytes: number, length: number, most: number): number;
}

/** Reasons to refuse an image, by the module's status. Status 0 means a decoded image. */
const REFUSALS = [
  undefined,
  "it must be a PNG, JPEG, WebP or GIF image",
  `it must have at most ${MOST_PIXELS} pixels`,
  "it is damaged, or of a rare kind",
] as const;

/** The error for a refused image. Its message is the reason. */
export class Refusal extends Error {}

let compiled: Promise<WebAssembly.Module> | undefined;

/** Compiles the module. Called once, for the first image. */
async function compile(): Promise<WebAssembly.Module> {
  const { readFile } = process.getBuiltinModule("node:fs").promises;
  return await WebAssembly.compile(new Uint8Array(await readFile(shipped("engine/vision/images.wasm"))));
}

/**
 * Returns the image in RGB, with its EXIF orientation applied and transparent pixels blended with white. Every image
 * gets its own instance of the module. Throws Refusal for an image that is damaged, too large, or of another kind.
 */
export async function decodeImage(bytes: Uint8Array): Promise<Rgb> {
  const instance = await WebAssembly.instantiate(await (compiled ??= compile()));
  const { memory, ...decoders } = instance.exports as unknown as Decoders;
  const at = decoders.allocate(bytes.length);
  new Uint8Array(memory.buffer, at).set(bytes);
  let decoded: number;
  try {
    decoded = decoders.decode(at, bytes.length, MOST_PIXELS);
  } catch {
    throw new Refusal(REFUSALS[3]); // the module trapped, for example without memory
  }
  const [status, width, height, pixels] = new Uint32Array(memory.buffer, decoded, 4);
  const refusal = REFUSALS[status];
  if (refusal) throw new Refusal(refusal);
  const [short, long] = [Math.min(width, height), Math.max(width, height)];
  if (long > MOST_RATIO * short) {
    throw new Refusal(
      `its longer side must be at most ${MOST_RATIO} times the shorter (got ${width} x ${height})`,
    );
  }
  return { width, height, pixels: new Uint8Array(memory.buffer, pixels, 3 * width * height) };
}
