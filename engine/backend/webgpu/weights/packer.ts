import { shippedModule } from "../../../../package.ts";
import { pack, type PackReply, type PackRequest } from "./packing.ts";

/**
 * Packs weights in a worker, so that this thread can answer requests. If the worker cannot start (no permission to read
 * its file), it packs on this thread with pauses between pieces.
 */
export class Packer implements Disposable {
  #worker: Worker | undefined;
  #waiting: { readonly request: PackRequest; readonly resolve: (reply: PackReply) => void } | undefined;

  /** Starts the worker. `url`: the worker's module. */
  constructor(url: URL = shippedModule("engine/backend/webgpu/weights/pack_worker.ts")) {
    try {
      this.#worker = new Worker(url, { type: "module", name: "pack" });
    } catch {
      return;
    }
    this.#worker.onmessage = ({ data }: MessageEvent<PackReply>) => {
      this.#waiting?.resolve(data);
      this.#waiting = undefined;
    };
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#worker?.terminate();
      this.#worker = undefined;
      this.#waiting?.resolve(pack(this.#waiting.request));
      this.#waiting = undefined;
    };
  }

  async pack(request: PackRequest): Promise<PackReply> {
    const worker = this.#worker;
    if (!worker) {
      await new Promise((resolve) => setTimeout(resolve));
      return pack(request);
    }
    const { promise, resolve } = Promise.withResolvers<PackReply>();
    this.#waiting = { request, resolve };
    worker.postMessage(request);
    return await promise;
  }

  /** Ends the worker. No call of `pack` may be pending. */
  [Symbol.dispose](): void {
    this.#worker?.terminate();
    this.#worker = undefined;
  }
}
