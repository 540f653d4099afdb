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

/** An error that the kernels reported, in their words, or the end of a worker. */
export class WasmError extends Error {
  override name = "WasmError";
}

interface Pending {
  readonly resolve: (outputs: readonly Uint8Array<ArrayBuffer>[]) => void;
  readonly reject: (error: Error) => void;
}

/** Bytes of a memory for which the runtime is asked to look at once for what nobody holds. */
const WORTH_COLLECTING = 256 * 2 ** 20;

/**
 * The kernels in a memory of their own, and workers that compute there: one that takes calls, one after the other, and one for
 * each further thread. Nothing here waits for them.
 */
export class Machine {
  readonly #workers: Port[] = [];
  /** Workers that have not ended. */
  #running = 0;
  readonly #pending = new Map<number, Pending>();
  #requests = 0;
  /** Why no call can be made any more. */
  #ended: WasmError | undefined;

  private constructor(
    readonly threads: number,
    /** That of the workers until they have ended; undefined where only they may see it. */
    private memory: WebAssembly.Memory | undefined,
  ) {}

  /** Starts so many threads, or one where memory cannot be shared. Throws WasmError. */
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

  /** Starts a worker; gives the threads that it has made room for. */
  #add(start: Start): Promise<readonly Thread[]> {
    const { promise, resolve, reject } = Promise.withResolvers<readonly Thread[]>();
    // What the worker calls must not name `start`: the memory would live as long.
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

  /** Ends all calls and all workers: where one has failed, the others would wait for it. */
  #end(reason: string): WasmError {
    for (const { terminate } of this.#workers.splice(0)) terminate();
    this.#giveBack();
    return this.#refuse(`The WebAssembly kernels failed: ${reason}`);
  }

  #ends({ terminate }: Port): void {
    terminate();
    if (--this.#running === 0) this.#giveBack();
  }

  /** Once no worker has the memory. */
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

  /** Outputs of some calls, made one after the other. Throws WasmError with the message of the first that fails. */
  calls(calls: readonly Call[], room = 0): Promise<readonly Uint8Array<ArrayBuffer>[]> {
    return new Promise((resolve, reject) => {
      if (this.#ended) return reject(this.#ended);
      const id = this.#requests++;
      this.#pending.set(id, { resolve, reject });
      this.#workers[0].send({ id, calls, room });
    });
  }

  /** The output of a call. */
  async call(name: string, handle: bigint, input: Uint8Array = new Uint8Array(0), room = 0) {
    return (await this.calls([{ name, handle, input }], room))[0];
  }

  /** Sets a byte of the memory, while the workers compute; says whether that could be done. */
  set(address: number, value: number): boolean {
    if (!this.memory || this.#ended) return false;
    Atomics.store(new Uint8Array(this.memory.buffer), address, value);
    return true;
  }

  /** Ends the workers when they have done what they are at. One that waits in the module cannot be ended from here. */
  close(): void {
    this.#refuse("The WebAssembly kernels are closed");
    this.#workers[0]?.send({ end: true });
    this.#workers.length = 0;
  }
}

/**
 * A memory goes back only when the runtime collects garbage, for which gigabytes outside of its heap are no reason: closed models
 * would stay, and the next one find no room. Before it refuses a buffer that no machine has room for, it collects.
 */
function collectGarbage(): void {
  try {
    new ArrayBuffer(2 ** 50);
  } catch {
    // refused, as it should be
  }
}

function makeMemory(): WebAssembly.Memory {
  const [initial, ...maxima] = MEMORY_PAGES;
  for (const maximum of maxima.slice(0, -1)) {
    try {
      return new WebAssembly.Memory({ initial, maximum, shared: true });
    } catch {
      // not so much address space
    }
  }
  return new WebAssembly.Memory({ initial, maximum: maxima.at(-1), shared: true });
}

/** A worker, in whichever runtime. */
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
