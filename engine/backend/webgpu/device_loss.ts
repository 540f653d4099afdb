import { GpuLost } from "./errors.ts";

/** Whether a device was lost. What waits for it must not wait for ever: drivers need not settle what was under way. */
export class DeviceLoss {
  #error: GpuLost | undefined;
  readonly #waiting = new Set<(error: GpuLost) => void>();

  constructor(device: Pick<GPUDevice, "lost">) {
    device.lost.then(({ reason, message }) => {
      this.#error = new GpuLost(`The GPU was lost (${reason || "unknown"}): ${message}`);
      for (const fail of this.#waiting) fail(this.#error);
      this.#waiting.clear();
    });
  }

  /** Set once it was lost. */
  get error(): GpuLost | undefined {
    return this.#error;
  }

  /** What the promise gives. Throws GpuLost as soon as the device is lost. */
  async or<T>(promise: Promise<T>): Promise<T> {
    promise.catch(() => {}); // it may fail when nobody waits any more
    if (this.#error) throw this.#error;
    const { promise: lost, reject } = Promise.withResolvers<never>();
    this.#waiting.add(reject);
    try {
      return await Promise.race([promise, lost]);
    } finally {
      this.#waiting.delete(reject);
    }
  }

  /** Gives the loss if it comes within so many milliseconds: a device says so some time after the call that failed by it. */
  async within(ms: number): Promise<GpuLost | undefined> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => timer = setTimeout(resolve, ms));
    await this.or(late).catch(() => {});
    clearTimeout(timer);
    return this.#error;
  }
}
