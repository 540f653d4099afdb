/** What is said between a machine and its workers. */

/** The first message to a worker. */
export interface Start {
  readonly module: WebAssembly.Module;
  /** Where all workers compute; absent where memory cannot be shared: the worker makes its own. */
  readonly memory?: WebAssembly.Memory;
  /** Pages of a memory that the worker makes. */
  readonly pages: readonly number[];
  /** Of a worker that computes for others: addresses of its own. */
  readonly thread?: Thread;
  /** Threads besides the worker's own. */
  readonly helpers: number;
}

/** The top of a stack, and where the thread's variables are. */
export interface Thread {
  readonly stack: number;
  readonly variables: number;
}

/** A call of the kernels: rust-kernels/src/ffi.rs says what goes in and comes out. */
export interface Call {
  readonly name: string;
  readonly handle: bigint;
  readonly input: Uint8Array;
}

/** Calls one after the other, the first that fails being the last; `room` is the bytes of the last one's output. */
export interface Request {
  readonly id: number;
  readonly calls: readonly Call[];
  readonly room: number;
}

/** The last message to the worker that takes calls: all are to end. */
export interface End {
  readonly end: true;
}

/** What a worker says. */
export type Reply =
  | { readonly ready: readonly Thread[] }
  /** Output of every call of a request. */
  | { readonly id: number; readonly outputs: readonly Uint8Array<ArrayBuffer>[] }
  /** The kernels' own message. */
  | { readonly id: number; readonly refusal: string }
  /** It does nothing any more. */
  | { readonly ended: true }
  /** The instance is of no use any more. */
  | { readonly failure: string };

/** A port to the machine, in whichever runtime. */
interface Port {
  send(reply: Reply): void;
  receive(take: (message: Start | Request | End) => void): void;
}

/** What the module exports. */
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
 * A worker's whole program. It travels as text, so that it needs no file of its own beside a bundle: it must not name anything
 * that stands outside of it.
 */
// deno-lint-ignore compy/function-length -- a program that travels as the text of one function
export function workerMain(): void {
  const STACK = 2 ** 20;
  /** Bytes of an output where the caller names none, and of a message. */
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
        // not so much address space
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
      // Workers begin to count at different times.
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

  /** Memory of messages, used again and again. */
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
