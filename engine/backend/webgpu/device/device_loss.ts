import { DeviceLost } from "../../backend.ts";

/** Milliseconds in which a device says that it was lost, after a call that failed by it. */
export const LOSS_MS = 200;

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

  /** What the promise gives. Throws DeviceLost as soon as the device is lost, or where the promise failed by that. */
  async or<T>(promise: Promise<T>): Promise<T> {
    promise.catch(() => {}); // it may fail when nobody waits any more
    if (this.#error) throw this.#error;
    const { promise: lost, reject } = Promise.withResolvers<never>();
    this.#waiting.add(reject);
    try {
      return await Promise.race([promise, lost]);
    } catch (error) {
      throw await this.within(LOSS_MS) ?? error;
    } finally {
      this.#waiting.delete(reject);
    }
  }

  /** Gives the loss if it comes within so many milliseconds. */
  async within(ms: number): Promise<DeviceLost | undefined> {
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, ms);
    await Promise.race([this.happens, late]);
    clearTimeout(timer);
    return this.#error;
  }
}
