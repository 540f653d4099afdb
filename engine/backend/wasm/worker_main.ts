/** Messages between a machine and its workers, and the workers' program. */

/** The first message to a worker. */
export interface Start {
  readonly module: WebAssembly.Module;
  /** The memory of all workers. If memory cannot be shared, it is absent and the worker creates its own. */
  readonly memory?: WebAssembly.Memory;
  /** Sizes of the memory that the worker creates; see MEMORY_PAGES. */
  readonly pages: readonly number[];
  /** Stack and variables of a helper thread; undefined in the worker that takes calls. */
  readonly thread?: Thread;
  /** Number of helper threads, without the worker's own. */
  readonly helpers: number;
}

/** Addresses of a thread: the top of its stack, and its variables. */
export interface Thread {
  readonly stack: number;
  readonly variables: number;
}

/** A call of a kernel function; rust-kernels/src/ffi.rs describes input and output. */
export interface Call {
  readonly name: string;
  readonly handle: bigint;
  readonly input: Uint8Array;
}

/** Kernel calls to make in order, up to the first that fails. `room`: maximum bytes of the last call's output. */
export interface Request {
  readonly id: number;
  readonly calls: readonly Call[];
  readonly room: number;
}

/** The last message to the worker that takes calls: it tells all workers to end. */
export interface End {
  readonly end: true;
}

/** A message from a worker. */
export type Reply =
  | { readonly ready: readonly Thread[] }
  /** The output of each call of a request. */
  | { readonly id: number; readonly outputs: readonly Uint8Array<ArrayBuffer>[] }
  /** The kernels' own error message. */
  | { readonly id: number; readonly refusal: string }
  /** The worker has ended. */
  | { readonly ended: true }
  /** The module instance is broken. */
  | { readonly failure: string };

/** A worker's port to the machine, in any runtime. */
interface Port {
  send(reply: Reply): void;
  receive(take: (message: Start | Request | End) => void): void;
}

/** Exports of the WebAssembly module. */
interface Kernels {
  readonly compy_init: () => void;
  readonly compy_threads: () => void;
  readonly compy_end: () => void;
  readonly compy_alloc: (bytes: number) => number;
  readonly compy_dealloc: (at: number, bytes: number) => void;
  readonly __wasm_init_tls: (at: number) => void;
  readonly __tls_size: WebAssembly.Global;
  readonly __stack_pointer: WebAssembly.Global;
  readonly [name: string]: unknown;
}

/**
 * A worker's whole program. It is sent as text, so that a bundle needs no separate file; it must not refer to anything
 * outside this function.
 */
// deno-lint-ignore compy/function-length -- a program that travels as the text of one function
export function workerMain(): void {
  const STACK = 2 ** 20;
  /** Default bytes of a call's output, and maximum bytes of an error message. */
  const ANSWER = 4096;

  // deno-lint-ignore no-explicit-any -- a worker's globals differ from runtime to runtime
  const scope = globalThis as any;
  const port: Port = typeof scope.postMessage === "function" && !scope.process?.versions?.node ||
      typeof scope.Deno !== "undefined"
    ? {
      send: (reply) => scope.postMessage(reply),
      receive: (take) => scope.onmessage = ({ data }: { data: Start | Request | End }) => take(data),
    }
    : (() => {
      const { parentPort } = scope.process.getBuiltinModule("node:worker_threads");
      return {
        send: (reply: Reply) => parentPort.postMessage(reply),
        receive: (take: (message: Start | Request | End) => void) => void parentPort.on("message", take),
      };
    })();

  let memory: WebAssembly.Memory;
  let kernels: Kernels;
  let panic = "";

  const text = (at: number, length: number) =>
    new TextDecoder().decode(new Uint8Array(memory.buffer, at >>> 0, length).slice());

  function makeMemory(pages: readonly number[]): WebAssembly.Memory {
    const [initial, ...maxima] = pages;
    for (const maximum of maxima) {
      try {
        return new WebAssembly.Memory({ initial, maximum, shared: true });
      } catch {
        // too little address space; try a smaller maximum
      }
    }
    throw new Error(`no memory of ${maxima.at(-1)! / 16} MiB can be had`);
  }

  function alloc(bytes: number): number {
    const at = kernels.compy_alloc(bytes) >>> 0;
    if (at === 0) throw new Error(`${bytes} bytes cannot be had of the module's memory`);
    return at;
  }

  async function start(message: Start): Promise<void> {
    memory = message.memory ?? makeMemory(message.pages);
    const host = {
      // Adds the time origin, because workers have different origins.
      now: () => performance.timeOrigin + performance.now(),
      panicked: (at: number, length: number) => panic = text(at, length),
    };
    const instance = await WebAssembly.instantiate(message.module, { env: { memory }, host });
    kernels = instance.exports as unknown as Kernels;
    if (message.thread) return help(message.thread);
    kernels.compy_init();
    const threads = Array.from({ length: message.helpers }, () => ({
      stack: alloc(STACK) + STACK,
      variables: alloc(kernels.__tls_size.value),
    }));
    port.send({ ready: threads });
  }

  function help({ stack, variables }: Thread): void {
    kernels.__stack_pointer.value = stack | 0;
    kernels.__wasm_init_tls(variables);
    port.send({ ready: [] });
    kernels.compy_threads();
    port.send({ ended: true });
  }

  /** Reused memory for the input and output of calls. */
  const rooms = { input: { at: 0, bytes: 0 }, output: { at: 0, bytes: 0 } };
  function room(kind: "input" | "output", bytes: number): number {
    const room = rooms[kind];
    if (room.bytes < bytes) {
      if (room.bytes > 0) kernels.compy_dealloc(room.at, room.bytes);
      room.bytes = 0;
      room.at = alloc(bytes);
      room.bytes = bytes;
    }
    return room.at;
  }

  function run({ id, calls, room: wanted }: Request): void {
    const outputs: Uint8Array<ArrayBuffer>[] = [];
    for (const { name, handle, input } of calls) {
      const at = room("input", Math.max(input.length, ANSWER));
      const bytes = Math.max(wanted, ANSWER);
      const to = room("output", bytes);
      new Uint8Array(memory.buffer, at, input.length).set(input);
      const call = kernels[name] as (
        handle: bigint,
        input: number,
        inputBytes: number,
        output: number,
        outputBytes: number,
      ) => number;
      const written = call(handle, at, input.length, to, bytes);
      if (written < 0) return port.send({ id, refusal: text(to, -1 - written) });
      outputs.push(new Uint8Array(memory.buffer, to, written).slice() as Uint8Array<ArrayBuffer>);
    }
    port.send({ id, outputs });
  }

  const fail = (error: unknown) => {
    const message = error instanceof Error ? error.message : String(error);
    port.send({ failure: panic === "" ? message : `${panic} (${message})` });
  };
  port.receive((message) => {
    try {
      if ("module" in message) start(message).catch(fail);
      else if ("calls" in message) run(message);
      else {
        kernels.compy_end();
        port.send({ ended: true });
      }
    } catch (error) {
      fail(error);
    }
  });
}
