import { DeviceLost } from "../backend.ts";

/** Whether a device was lost. What waits for it must not wait for ever: drivers need not settle what was under way. */
export class DeviceLoss {
  /** Resolves when it is lost. */
  readonly happens: Promise<DeviceLost>;
  #error: DeviceLost | undefined;
  readonly #waiting = new Set<(error: DeviceLost) => void>();

  constructor(device: Pick<GPUDevice, "lost">) {
    this.happens = device.lost.then(({ reason, message }) => {
      const error = new DeviceLost(`The GPU was lost (${reason || "unknown"}): ${message}`);
      this.#error = error;
      for (const fail of this.#waiting) fail(error);
      this.#waiting.clear();
      return error;
    });
  }

  /** Set once it was lost. */
  get error(): DeviceLost | undefined {
    return this.#error;
  }

  /** What the promise gives. Throws DeviceLost as soon as the device is lost. */
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
  async within(ms: number): Promise<DeviceLost | undefined> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => timer = setTimeout(resolve, ms));
    await this.or(late).catch(() => {});
    clearTimeout(timer);
    return this.#error;
  }
}
