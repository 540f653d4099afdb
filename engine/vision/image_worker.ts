/** The program of the worker that decodes one image. Only this worker loads the decoders (rust-images). */
import { shipped } from "../../package.ts";
import { type ImageSizes, MOST_RATIO, type Patches, patchesOf } from "./patches.ts";
import type { Rgb } from "./resize.ts";

/** An encoded image, and how to prepare it. */
export interface ImageTask {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly sizes: ImageSizes;
}

/** The prepared image and the SHA-256 of its patches, or why the image was refused. */
export type ImageReply = { readonly patches: Patches; readonly digest: string } | {
  readonly refusal: string;
};

/** Maximum pixels before scaling: a decoded image takes up to 7 bytes per pixel, and its decoder about as many. */
const MOST_PIXELS = 2 ** 25;

/** The module's exports. The module's build limits its memory. */
interface Decoders {
  readonly memory: WebAssembly.Memory;
  allocate(bytes: number): number;
  decode(bytes: number, length: number, most: number): number;
}

/** Reasons of refusals, by the module's status; status 0 is a decoded image. */
const REFUSALS = [
  undefined,
  "it must be a PNG, JPEG or WebP image",
  `it must have at most ${MOST_PIXELS} pixels`,
  "it is damaged, or of a rare kind",
] as const;

class Refusal extends Error {}

async function prepare({ bytes, sizes }: ImageTask): Promise<ImageReply> {
  const patches = patchesOf(await decode(bytes), sizes);
  const shape = new TextEncoder().encode(`${patches.rows} x ${patches.columns}`);
  const digests = await Promise.all(
    [shape, patches.values].map((data) => crypto.subtle.digest("SHA-256", data)),
  );
  return { patches, digest: digests.map(hexOf).join("") };
}

/** Returns bytes as hexadecimal digits. Node 22 has no `toHex`. */
function hexOf(bytes: ArrayBuffer): string {
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function decode(bytes: Uint8Array): Promise<Rgb> {
  const module = await process.getBuiltinModule("node:fs").promises.readFile(
    shipped("engine/vision/images.wasm"),
  );
  const { instance } = await WebAssembly.instantiate(new Uint8Array(module));
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

interface Port {
  postMessage(reply: ImageReply, transfer?: Transferable[]): void;
}

async function answer(task: ImageTask, port: Port): Promise<void> {
  const reply = await prepare(task).catch((error): ImageReply => {
    if (error instanceof Refusal) return { refusal: error.message };
    throw error;
  });
  port.postMessage(reply, "patches" in reply ? [reply.patches.values.buffer] : []);
}

if (typeof Deno === "undefined") {
  const { parentPort } = process.getBuiltinModule("node:worker_threads");
  parentPort!.on("message", (task: ImageTask) => answer(task, parentPort as unknown as Port));
} else {
  const port = globalThis as unknown as Port & { onmessage: (event: MessageEvent<ImageTask>) => void };
  port.onmessage = ({ data }) => answer(data, port);
}
