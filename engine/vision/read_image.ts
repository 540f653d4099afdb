import { shippedModule } from "../../package.ts";
import { EngineError } from "../api/errors.ts";
import type { ImageReply, ImageTask } from "./image_worker.ts";
import { MOST_IMAGE_BYTES } from "./limits.ts";

/** Maximum milliseconds to read an image. A slower image is refused. */
const MOST_MS = 20_000;

/** The latest image's decoding. Images are decoded one after the other, so that only one takes memory. */
let last: Promise<unknown> = Promise.resolve();

/**
 * Decodes and scales an image in a worker of its own. Throws EngineError invalid_request for an image that is
 * broken, too large, or takes too long.
 */
export function readImage(
  task: ImageTask,
  signal?: AbortSignal,
): Promise<Extract<ImageReply, { patches: unknown }>> {
  const { length } = task.bytes;
  if (length > MOST_IMAGE_BYTES) {
    throw refused(`it must have at most ${MOST_IMAGE_BYTES} bytes (got ${length})`);
  }
  const read = last.then(() => {
    signal?.throwIfAborted();
    return inWorker(task, signal);
  });
  last = read.catch(() => {});
  return read;
}

async function inWorker(
  task: ImageTask,
  signal?: AbortSignal,
): Promise<Extract<ImageReply, { patches: unknown }>> {
  if (typeof Worker === "undefined") throw new EngineError("not_supported", "Images need Deno"); // Node has none
  const worker = new Worker(shippedModule("engine/vision/image_worker.ts"), {
    type: "module",
    name: "image",
  });
  const { promise, resolve, reject } = Promise.withResolvers<ImageReply>();
  const timer = setTimeout(
    () => resolve({ refusal: `decoding it takes more than ${MOST_MS / 1000} s` }),
    MOST_MS,
  );
  const abort = () => reject(signal!.reason);
  signal?.addEventListener("abort", abort, { once: true });
  worker.onmessage = ({ data }: MessageEvent<ImageReply>) => resolve(data);
  worker.onerror = (event) => {
    event.preventDefault();
    reject(new EngineError("engine_failed", `The image decoder failed: ${event.message}`));
  };
  worker.postMessage(task, [task.bytes.buffer]);
  try {
    const reply = await promise;
    if ("refusal" in reply) throw refused(reply.refusal);
    return reply;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
    worker.terminate();
  }
}

function refused(reason: string): EngineError {
  return new EngineError("invalid_request", `Cannot read the image: ${reason}`);
}
