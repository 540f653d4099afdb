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
  const { promise, resolve, reject } = Promise.withResolvers<ImageReply>();
  const timer = setTimeout(
    () => resolve({ refusal: `decoding it takes more than ${MOST_MS / 1000} s` }),
    MOST_MS,
  );
  const abort = () => reject(signal!.reason);
  signal?.addEventListener("abort", abort, { once: true });
  const stop = startWorker(
    task,
    resolve,
    (reason) => reject(new EngineError("engine_failed", `The image decoder failed: ${reason}`)),
  );
  try {
    const reply = await promise;
    if ("refusal" in reply) throw refused(reply.refusal);
    return reply;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
    stop();
  }
}

/** Starts a worker for one image. Returns a function that ends the worker. */
function startWorker(
  task: ImageTask,
  take: (reply: ImageReply) => void,
  fail: (reason: string) => void,
): () => void {
  const url = shippedModule("engine/vision/image_worker.ts");
  const handed = [task.bytes.buffer];
  if (typeof Worker === "undefined") {
    const threads = process.getBuiltinModule("node:worker_threads");
    const worker = new threads.Worker(url, { name: "image" });
    worker.on("message", take);
    worker.on("error", (error) => fail(error instanceof Error ? error.message : String(error)));
    worker.postMessage(task, handed);
    return () => void worker.terminate();
  }
  const worker = new Worker(url, { type: "module", name: "image" });
  worker.onmessage = ({ data }: MessageEvent<ImageReply>) => take(data);
  worker.onerror = (event) => {
    event.preventDefault();
    fail(event.message);
  };
  worker.postMessage(task, handed);
  return () => worker.terminate();
}

function refused(reason: string): EngineError {
  return new EngineError("invalid_request", `Cannot read the image: ${reason}`);
}
