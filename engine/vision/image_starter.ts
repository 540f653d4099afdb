/**
 * The program of the worker that starts decoders of images. The start of a worker blocks the thread that starts it, so
 * that thread must not be the one that serves requests.
 */
import { shippedModule } from "../../package.ts";

export type StarterTask =
  /** Starts the decoder `start`, which talks over the port. */
  | { readonly start: number; readonly port: MessagePort }
  /** Ends the decoder `stop` at once. */
  | { readonly stop: number };

const decoders = new Map<number, Worker>();

const messages = globalThis as unknown as { onmessage: (event: MessageEvent<StarterTask>) => void };

messages.onmessage = ({ data }) => {
  if ("stop" in data) {
    decoders.get(data.stop)?.terminate();
    decoders.delete(data.stop);
    return;
  }
  const decoder = new Worker(shippedModule("engine/vision/image_worker.ts"), {
    type: "module",
    name: "image",
  });
  decoder.onerror = (event) => event.preventDefault(); // its image's time limit ends the wait
  decoder.postMessage(data.port, [data.port]);
  decoders.set(data.start, decoder);
};
