/**
 * Workers that decode images. A worker decodes one image at a time, and is kept for later images. One more worker than
 * needed is kept ready, because its start takes a second.
 */
import { shippedModule } from "../../package.ts";
import type { StarterTask } from "./image_starter.ts";
import type { ImageReply, ImageTask } from "./image_worker.ts";

/** Maximum milliseconds to read an image. A slower image is refused. */
const MOST_MS = 20_000;

interface Thread {
  send(message: unknown, moved: Transferable[]): void;
  stop(): void;
}

interface Decoder {
  readonly port: MessagePort;
  /** Resolves when the worker has started. */
  readonly ready: Promise<unknown>;
  stop(): void;
}

let users = 0;
let started = 0;
let starter: Thread | undefined;
/** Decoders without an image. */
let idle: Decoder[] = [];

/**
 * Starts the first decoder, and the worker that starts others. They end when all users have called the returned
 * function. The start takes some 60 ms of the event loop, so a model's load calls this function, not its first image.
 */
export function useDecoders(): () => void {
  if (users++ === 0) {
    if (typeof Worker !== "undefined") starter = threadOf("engine/vision/image_starter.ts");
    idle = [startHere(), start()];
  }
  return () => {
    if (--users > 0) return;
    for (const decoder of idle.splice(0)) decoder.stop();
    starter?.stop();
    starter = undefined;
  };
}

/** Starts a module as a thread. If the thread fails, the time limit of its image ends the wait. */
function threadOf(path: string): Thread {
  const url = shippedModule(path);
  if (typeof Worker === "undefined") {
    const worker = new (process.getBuiltinModule("node:worker_threads").Worker)(url, { name: "image" });
    worker.on("error", () => {});
    return {
      send: (message, moved) => worker.postMessage(message, moved as never),
      stop: () => void worker.terminate(),
    };
  }
  const worker = new Worker(url, { type: "module", name: "image" });
  worker.onerror = (event) => event.preventDefault();
  return { send: (message, moved) => worker.postMessage(message, moved), stop: () => worker.terminate() };
}

/** Starts a decoder in this thread, which blocks it, but a decoder of the starter takes a second. */
function startHere(): Decoder {
  const { send, stop } = threadOf("engine/vision/image_worker.ts");
  return connected((port) => send(port, [port]), stop);
}

function start(): Decoder {
  if (!starter) return startHere(); // in Node, where the start of a worker blocks for a moment only
  const id = started++;
  const tell = (task: StarterTask, moved: Transferable[] = []) => starter?.send(task, moved);
  return connected((port) => tell({ start: id, port }, [port]), () => tell({ stop: id }));
}

function connected(send: (port: MessagePort) => void, end: () => void): Decoder {
  const { port1: port, port2 } = new MessageChannel();
  const ready = new Promise((resolve) => port.onmessage = resolve);
  send(port2);
  return {
    port,
    ready,
    stop() {
      port.close();
      end();
    },
  };
}

/** Decodes and scales an image. Ends the decoder if the image takes too long. */
export async function decode(task: ImageTask): Promise<ImageReply> {
  const release = useDecoders();
  const decoder = idle.shift() ?? start();
  if (idle.length === 0) idle.push(start());
  const { promise, resolve } = Promise.withResolvers<ImageReply>();
  const tooSlow = { refusal: `decoding it takes more than ${MOST_MS / 1000} s` };
  const timer = setTimeout(() => resolve(tooSlow), MOST_MS);
  let reply: ImageReply = tooSlow;
  try {
    await Promise.race([decoder.ready, promise]);
    decoder.port.onmessage = ({ data }: MessageEvent<ImageReply>) => resolve(data);
    decoder.port.postMessage(task, [task.bytes.buffer]);
    return reply = await promise;
  } finally {
    clearTimeout(timer);
    if (reply === tooSlow) decoder.stop();
    else idle.unshift(decoder);
    release();
  }
}
