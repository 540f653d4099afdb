import { DeviceLost } from "../../backend.ts";

/**
 * Milliseconds to wait for the device's loss report after a failed call: the report may come later than the failure.
 */
export const LOSS_MS = 200;

/**
 * Tells whether a device was lost. Drivers may leave promises pending after a loss, so waiters use this promise too.
 */
export class DeviceLoss {
  /** Resolves when the device is lost. */
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

  /** The loss as an error; undefined while the device works. */
  get error(): DeviceLost | undefined {
    return this.#error;
  }

  /**
   * Returns the promise's value. Throws DeviceLost as soon as the device is lost, or if the loss made the promise fail.
   */
  async or<T>(promise: Promise<T>): Promise<T> {
    promise.catch(() => {}); // the promise may fail after all waiters have stopped
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

  /** Returns the device's loss if it is reported within `ms` milliseconds. */
  async within(ms: number): Promise<DeviceLost | undefined> {
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, ms);
    await Promise.race([this.happens, late]);
    clearTimeout(timer);
    return this.#error;
  }
}
