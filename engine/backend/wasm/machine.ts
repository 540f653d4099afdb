import { canShareMemory, kernelModule, MEMORY_PAGES } from "./module.ts";
import {
  type Call,
  type End,
  type Reply,
  type Request,
  type Start,
  type Thread,
  workerMain,
} from "./worker_main.ts";

/** An error with the kernels' own message, or the failure of a worker. */
export class WasmError extends Error {
  override name = "WasmError";
}

interface Pending {
  readonly resolve: (outputs: readonly Uint8Array<ArrayBuffer>[]) => void;
  readonly reject: (error: Error) => void;
}

/** Bytes of released memory from which garbage is collected at once. */
const WORTH_COLLECTING = 256 * 2 ** 20;

/**
 * Runs the WebAssembly kernels in a separate memory with workers: one executes calls in order, and each further thread
 * has its own. No method blocks.
 */
export class Machine {
  readonly #workers: Port[] = [];
  /** Number of workers that have not ended. */
  #running = 0;
  readonly #pending = new Map<number, Pending>();
  #requests = 0;
  /** The error that all further calls throw, once the machine has ended. */
  #ended: WasmError | undefined;

  private constructor(
    readonly threads: number,
    /** The workers' memory, kept until they have ended; undefined if this thread cannot share it. */
    private memory: WebAssembly.Memory | undefined,
  ) {}

  /** Starts `wanted` threads, or one if memory cannot be shared. Throws WasmError. */
  static async start(wanted: number): Promise<Machine> {
    const shared = canShareMemory();
    const memory = shared ? makeMemory() : undefined;
    const machine = new Machine(shared ? wanted : 1, memory);
    try {
      const module = await kernelModule();
      const start: Start = { module, memory, pages: MEMORY_PAGES, helpers: machine.threads - 1 };
      const threads = await machine.#add(start);
      await Promise.all(threads.map((thread) => machine.#add({ ...start, thread })));
      return machine;
    } catch (error) {
      machine.close();
      const reason = error instanceof Error ? error.message : String(error);
      throw new WasmError(`Cannot start the WebAssembly kernels: ${reason}`, { cause: error });
    }
  }

  /** Starts a worker. Returns the threads for which it has allocated stacks. */
  #add(start: Start): Promise<readonly Thread[]> {
    const { promise, resolve, reject } = Promise.withResolvers<readonly Thread[]>();
    // The callbacks must not capture `start`, or the memory would live as long as the worker.
    const worker = openPort((reply) => {
      if ("ready" in reply) resolve(reply.ready);
      else if ("failure" in reply) reject(this.#end(reply.failure));
      else if ("ended" in reply) this.#ends(worker);
      else this.#settle(reply);
    }, (reason) => reject(this.#end(reason)));
    this.#running++;
    this.#workers.push(worker);
    worker.send(start);
    return promise;
  }

  #settle(reply: Extract<Reply, { id: number }>): void {
    const pending = this.#pending.get(reply.id);
    this.#pending.delete(reply.id);
    if ("outputs" in reply) pending?.resolve(reply.outputs);
    else pending?.reject(new WasmError(reply.refusal));
  }

  /** Ends all calls and workers, because the other workers would wait for a failed one. Returns the error. */
  #end(reason: string): WasmError {
    for (const { terminate } of this.#workers.splice(0)) terminate();
    this.#giveBack();
    return this.#refuse(`The WebAssembly kernels failed: ${reason}`);
  }

  #ends({ terminate }: Port): void {
    terminate();
    if (--this.#running === 0) this.#giveBack();
  }

  /** Releases the memory when no worker uses it. */
  #giveBack(): void {
    const bytes = this.memory?.buffer.byteLength ?? 0;
    this.memory = undefined;
    if (bytes >= WORTH_COLLECTING) collectGarbage();
  }

  #refuse(reason: string): WasmError {
    const error = this.#ended ??= new WasmError(reason);
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
    return error;
  }

  /** Makes calls in order and returns their outputs. Throws WasmError with the message of the first failing call. */
  calls(calls: readonly Call[], room = 0): Promise<readonly Uint8Array<ArrayBuffer>[]> {
    return new Promise((resolve, reject) => {
      if (this.#ended) return reject(this.#ended);
      const id = this.#requests++;
      this.#pending.set(id, { resolve, reject });
      this.#workers[0].send({ id, calls, room });
    });
  }

  /** Makes one kernel call and returns its output. */
  async call(name: string, handle: bigint, input: Uint8Array = new Uint8Array(0), room = 0) {
    return (await this.calls([{ name, handle, input }], room))[0];
  }

  /** Sets a byte of the memory while the workers compute. Returns false if the memory is not shared. */
  set(address: number, value: number): boolean {
    if (!this.memory || this.#ended) return false;
    Atomics.store(new Uint8Array(this.memory.buffer), address, value);
    return true;
  }

  /** Ends the workers after their current calls. A worker that waits inside the module cannot be ended from here. */
  close(): void {
    this.#refuse("The WebAssembly kernels are closed");
    this.#workers[0]?.send({ end: true });
    this.#workers.length = 0;
  }
}

/**
 * Makes the runtime collect garbage, by asking for an impossibly large buffer. The runtime frees a WebAssembly memory
 * only in a collection, but its size does not trigger one. Closed models would stay in memory, and the next model would
 * not fit.
 */
function collectGarbage(): void {
  try {
    new ArrayBuffer(2 ** 50);
  } catch {
    // the allocation always fails
  }
}

function makeMemory(): WebAssembly.Memory {
  const [initial, ...maxima] = MEMORY_PAGES;
  for (const maximum of maxima.slice(0, -1)) {
    try {
      return new WebAssembly.Memory({ initial, maximum, shared: true });
    } catch {
      // too little address space; try a smaller maximum
    }
  }
  return new WebAssembly.Memory({ initial, maximum: maxima.at(-1), shared: true });
}

/** A worker in any runtime. */
interface Port {
  send(message: Start | Request | End): void;
  terminate(): void;
}

function openPort(take: (reply: Reply) => void, fail: (reason: string) => void): Port {
  const program = `(${workerMain})()`;
  if (typeof Worker === "undefined") return openInNode(program, take, fail);
  const url = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
  const worker = new Worker(url, { type: "module", name: "compy" });
  worker.onmessage = ({ data }) => take(data);
  worker.onerror = (event) => {
    event.preventDefault();
    fail(event.message);
  };
  return {
    send: (message) => worker.postMessage(message),
    terminate: () => {
      worker.terminate();
      URL.revokeObjectURL(url);
    },
  };
}

function openInNode(program: string, take: (reply: Reply) => void, fail: (reason: string) => void): Port {
  const { Worker } = process.getBuiltinModule("node:worker_threads");
  const worker = new Worker(program, { eval: true, name: "compy" });
  worker.on("message", take);
  worker.on("error", (error) => fail(error instanceof Error ? error.message : String(error)));
  return { send: (message) => worker.postMessage(message), terminate: () => void worker.terminate() };
}
