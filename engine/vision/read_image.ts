import { EngineError } from "../api/errors.ts";
import { type Asker, FairTurns } from "../pacing/fair_turns.ts";
import { decode } from "./decoders.ts";
import type { ImageReply, ImageTask } from "./image_worker.ts";
import { MOST_IMAGE_BYTES } from "./limits.ts";

/**
 * Images are decoded one at a time, which bounds memory. Up to three more may be decoded meanwhile, each for a tenant
 * that has no image in a decoder.
 */
const turns = new FairTurns({ atOnce: 1, ofTenant: 1, firstAmong: 4 });

/** The sender of an image, and the signal that ends the wait for it. */
export interface ImageSender extends Partial<Asker> {
  readonly signal?: AbortSignal;
}

/**
 * Decodes and scales an image in a worker, when it is the sender's turn. Throws EngineError invalid_request for an
 * image that is damaged, too large, or takes too long to decode.
 */
export async function readImage(
  task: ImageTask,
  { tenant = "", batch = false, signal }: ImageSender = {},
): Promise<Extract<ImageReply, { patches: unknown }>> {
  const { length } = task.bytes;
  if (length > MOST_IMAGE_BYTES) {
    throw refused(`it must have at most ${MOST_IMAGE_BYTES} bytes (got ${length})`);
  }
  const reply = await turns.run({ tenant, batch }, async (hold) => {
    signal?.throwIfAborted();
    const decoded = decode(task);
    hold(decoded.then(() => {}, () => {})); // the decoder continues after an abort
    return await unlessAborted(decoded, signal);
  }, signal);
  if ("refusal" in reply) throw refused(reply.refusal);
  if ("failed" in reply) {
    throw new EngineError("engine_failed", `The image decoder failed: ${reply.failed}`);
  }
  return reply;
}

async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  const { promise: left, reject } = Promise.withResolvers<never>();
  const abort = () => reject(signal!.reason);
  signal?.addEventListener("abort", abort, { once: true });
  return await Promise.race([work, left]).finally(() => signal?.removeEventListener("abort", abort));
}

function refused(reason: string): EngineError {
  return new EngineError("invalid_request", `Cannot read the image: ${reason}`);
}
