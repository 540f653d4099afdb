/** The program of the worker that decodes one image. Only this worker loads the decoders (rust-images). */
import { decodeImage, Refusal } from "./decode.ts";
import { type ImageSizes, type Patches, patchesOf } from "./patches.ts";
import { scaled } from "./scaling.ts";

/** An encoded image, and how to prepare it. */
export interface ImageTask {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly sizes: ImageSizes;
}

/** The prepared image and the SHA-256 of its patches, or why the image was refused. */
export type ImageReply = { readonly patches: Patches; readonly digest: string } | {
  readonly refusal: string;
};

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
