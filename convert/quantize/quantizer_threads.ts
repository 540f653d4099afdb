import { shippedModule } from "../../package.ts";
import { ConvertError } from "../errors.ts";
import { type Outcome, type Quantized, type QuantizeTask, tryQuantize } from "./blocks.ts";

/** The calling thread quantizes tasks with fewer values, because starting a worker takes longer. */
const LEAST_VALUES = 65_536;

interface Job {
  readonly task: QuantizeTask;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: Error) => void;
}

/** Workers that quantize rows. Each task has some rows. A new worker starts if no worker is idle. */
export class QuantizerThreads implements Disposable {
  readonly #workers: Worker[] = [];
  readonly #idle: Worker[] = [];
  readonly #waiting: Job[] = [];
  #last: Promise<unknown> = Promise.resolve();

  /** `count`: maximum number of workers. If it is 1, the calling thread quantizes. */
  constructor(readonly count: number) {}

  /**
   * Quantizes rows. The promises resolve in the order of the calls: to undefined if the type cannot hold a value. A
   * promise rejects with ConvertError if quantizing or a worker fails. The values' buffer may move to a worker, so the
   * caller must not use it again.
   */
  quantize(task: QuantizeTask): Promise<Quantized | undefined> {
    const outcome = this.count === 1 || task.values.length < LEAST_VALUES
      ? tryQuantize(task)
      : this.#hand(task);
    const inOrder = Promise.all([outcome, this.#last]).then(([{ rows, error }]) => {
      if (error !== undefined) throw new ConvertError(`Cannot quantize to ${task.to}: ${error}`);
      return rows;
    });
    this.#last = inOrder;
    return inOrder;
  }

  #hand(task: QuantizeTask): Promise<Outcome> {
    const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
    this.#waiting.push({ task, resolve, reject });
    const worker = this.#idle.pop() ?? (this.#workers.length < this.count ? this.#start() : undefined);
    if (worker) this.#next(worker);
    return promise;
  }

  #start(): Worker {
    const url = shippedModule("convert/quantize/quantize_worker.ts");
    const worker = new Worker(url, { type: "module", name: "quantize" });
    this.#workers.push(worker);
    return worker;
  }

  #next(worker: Worker): void {
    const job = this.#waiting.shift();
    if (!job) {
      this.#idle.push(worker);
      return;
    }
    worker.onmessage = ({ data }) => {
      job.resolve(data);
      this.#next(worker);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      job.reject(new ConvertError(`A quantizing thread failed: ${event.message}`));
    };
    worker.postMessage(job.task, [job.task.values.buffer]);
  }

  [Symbol.dispose](): void {
    for (const worker of this.#workers) worker.terminate();
  }
}
