import { shippedModule } from "../../package.ts";
import { ConvertError } from "../errors.ts";
import { quantizeBlocks, type Quantized, type QuantizeTask } from "./blocks.ts";

/** Rows with fewer values are quantized without a worker, because the start of a worker takes longer. */
const LEAST_VALUES = 65_536;

interface Job {
  readonly task: QuantizeTask;
  readonly resolve: (result: Quantized | undefined) => void;
  readonly reject: (error: Error) => void;
}

/** Workers that quantize rows, each some rows at a time. A worker starts when a task finds no idle worker. */
export class QuantizerThreads implements Disposable {
  readonly #workers: Worker[] = [];
  readonly #idle: Worker[] = [];
  readonly #waiting: Job[] = [];
  #last: Promise<unknown> = Promise.resolve();

  /** `count`: maximum number of workers. If it is 1, the calling thread quantizes. */
  constructor(readonly count: number) {}

  /**
   * Quantizes rows. The values' buffer may move to a worker, so the caller must not use it again. Results arrive in the
   * order of the calls. Resolves to undefined if the type cannot hold a value; rejects if a worker fails.
   */
  quantize(task: QuantizeTask): Promise<Quantized | undefined> {
    const result = this.count === 1 || task.values.length < LEAST_VALUES
      ? Promise.resolve(quantizeBlocks(task))
      : this.#hand(task);
    const inOrder = Promise.all([result, this.#last]).then(([found]) => found);
    this.#last = inOrder;
    return inOrder;
  }

  #hand(task: QuantizeTask): Promise<Quantized | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<Quantized | undefined>();
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
