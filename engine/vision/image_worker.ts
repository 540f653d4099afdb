/** The program of a worker that decodes images. Only these workers load the decoders (rust-images). */
import { decodeImage, Refusal } from "./decode.ts";
import { type ImageSizes, type Patches, patchesOf } from "./patches.ts";
import { scaled } from "./scaling.ts";

/** An encoded image, and how to prepare it. */
export interface ImageTask {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly sizes: ImageSizes;
}

/** The prepared image and the SHA-256 of its patches, or why the image was refused, or an unexpected error. */
export type ImageReply =
  | { readonly patches: Patches; readonly digest: string }
  | { readonly refusal: string }
  | { readonly failed: string };

async function prepare({ bytes, sizes }: ImageTask): Promise<ImageReply> {
  const { patch, merged, scaling } = sizes;
  const patches = patchesOf(scaled(await decodeImage(bytes), scaling, patch * merged), sizes);
  const { rows, columns, tiles } = patches;
  const shape = new TextEncoder().encode(JSON.stringify([rows, columns, tiles]));
  const digests = await Promise.all(
    [shape, patches.values].map((data) => crypto.subtle.digest("SHA-256", data)),
  );
  return { patches, digest: digests.map(hexOf).join("") };
}

/** Returns bytes as hexadecimal digits. Node 22 has no `toHex`. */
function hexOf(bytes: ArrayBuffer): string {
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Serves a port: says that the worker is ready, and replies to each task. */
function serve(port: MessagePort): void {
  port.onmessage = async ({ data }: MessageEvent<ImageTask>) => {
    const reply = await prepare(data).catch((error): ImageReply => {
      return error instanceof Refusal ? { refusal: error.message } : { failed: String(error) };
    });
    port.postMessage(reply, "patches" in reply ? [reply.patches.values.buffer] : []);
  };
  port.postMessage("ready");
}

if (typeof Deno === "undefined") {
  process.getBuiltinModule("node:worker_threads").parentPort!.on("message", serve);
} else {
  const messages = globalThis as unknown as { onmessage: (event: MessageEvent<MessagePort>) => void };
  messages.onmessage = ({ data }) => serve(data);
}
