import { assertEquals } from "@std/assert";
import { CpuBackend } from "../../engine/backend/cpu/cpu.ts";
import { loadReloadingEngine } from "../../engine/load/load_reloading.ts";
import { type Engine, EngineError, type GenerateRequest } from "../../engine/mod.ts";
import { synthesize } from "../../testing/synth/synth.ts";

/** Moments of device loss: during loading, at a backend call, during streams, or on close. */
const MOMENTS = ["load", "compile", "submit", "write", "map", "read", "time", "idle", "close"] as const;
type Moment = typeof MOMENTS[number];

/** Seconds after which an operation counts as hanging, without time in which this process is stopped. */
const HANG_SECONDS = 300;
const STREAMS = 4;
const VOCABULARY = 300;

/** Different extra options of the streams. */
const WANTED: readonly Partial<GenerateRequest>[] = [
  {},
  { constraint: { kind: "regex", pattern: "[a-z ]{40}" } },
  { logprobs: 2, priority: "batch" },
  { constraint: { kind: "regex", pattern: "[0-9]{3}(-and-so-on-)[0-9]{40}" } },
];

/** WebGPU calls at which devices are lost, with the number of calls before the loss. */
interface Fuse {
  readonly moment: Moment;
  calls: number;
}

/** Engines on lost GPUs, and their streams. */
export class Losses {
  injected = 0;
  readonly complaints: string[] = [];
  /** Counts of stream endings, and of losses per moment. */
  readonly ends = new Map<string, number>();
  readonly moments = new Map<string, number>();
  readonly #restore: (() => void)[] = [];
  readonly #devices = new Set<GPUDevice>();
  /** Live buffers of all GPU devices. */
  readonly #buffers = new Set<GPUBuffer>();
  /** Complete answers per request. */
  readonly #answers = new Map<number, Set<string>>();
  #fuse: Fuse | undefined;
  #round = 0;
  #loading = false;

  private constructor(
    private readonly path: string,
    private seed: number,
    private readonly log: (line: string) => void,
  ) {}

  /** Watches all devices of this process until `end`. */
  static async start(seed: number, log: (line: string) => void = () => {}): Promise<Losses> {
    const path = await Deno.makeTempFile({ prefix: "losses-", suffix: ".gguf" });
    const bytes = synthesize({
      architecture: "qwen3",
      types: ["Q8_0"],
      layers: 2,
      seed: 5,
      vocabulary: VOCABULARY,
    });
    await Deno.writeFile(path, bytes);
    const losses = new Losses(path, seed, log);
    losses.#watch();
    return losses;
  }

  async end(): Promise<void> {
    for (const restore of this.#restore) restore();
    await Deno.remove(this.path);
  }

  summary(): string {
    const list = (counts: Map<string, number>) => [...counts].map(([what, n]) => `${n} ${what}`).join(", ");
    return [
      `${this.injected} devices lost: ${list(this.moments)}`,
      `streams: ${list(this.ends)}`,
      ...this.complaints,
    ].join("\n");
  }

  /** Loads an engine, runs streams, and loses its device at one or more moments. */
  async round(): Promise<void> {
    const moment = MOMENTS[this.#round++ % MOMENTS.length];
    const backend = this.#random(2) === 0 ? "auto" : "webgpu";
    const before = this.injected;
    this.#fuse = { moment, calls: 1 + this.#random(moment === "submit" || moment === "write" ? 40 : 6) };
    const notes: string[] = [];
    const options = { model: this.path, backend, threads: 1, parallel: STREAMS, contextLength: 256 } as const;
    let engine: Engine;
    let onGpu = false;
    this.#loading = true;
    try {
      const loaded = await this.#soon(
        "load",
        loadReloadingEngine(options, { note: (text) => notes.push(text) }),
      );
      engine = loaded.engine;
      onGpu = loaded.backend.info.name === "webgpu";
    } catch (error) {
      this.#count(this.ends, `load: ${nameOf(error)}`);
      this.#fuse = undefined;
      return await this.#check(before, moment);
    } finally {
      this.#loading = false;
    }
    const streams = Array.from({ length: STREAMS }, (_, n) => this.#stream(engine, n));
    if (moment === "time") setTimeout(() => this.#lose(moment), this.#random(150));
    for (const end of await this.#soon("streams", Promise.all(streams))) this.#count(this.ends, end);
    if (moment === "idle") this.#lose(moment);
    if (this.injected > before) await this.#soon("reload", this.#works(engine));
    const fellBack = notes.some((note) => note.includes("computed on the CPU from here on"));
    if (onGpu && this.injected > before && fellBack !== (backend === "auto")) {
      this.complaints.push(`round ${this.#round}: ${backend} was loaded again, with ${notes.join("; ")}`);
    }
    const closed = engine.close();
    if (moment === "close") this.#lose(moment);
    await this.#soon("close", closed);
    this.#fuse = undefined;
    await this.#check(before, moment);
  }

  /** Checks that an engine answers after a loss, unless reloading stopped. */
  async #works(engine: Engine): Promise<void> {
    let end: string;
    do {
      while (engine.state === "loading") await new Promise((resolve) => setTimeout(resolve, 5));
      end = await this.#stream(engine, 0);
      // A request just after a loss may be the first to detect it.
    } while (engine.state !== "failed" && ["device_lost", "engine_unavailable"].includes(end));
    if (end !== "whole" && !end.includes("device_lost")) this.complaints.push(`after a loss: ${end}`);
  }

  async #stream(engine: Engine, n: number): Promise<string> {
    const prompt = Array.from({ length: 5 + 17 * n }, (_, i) => (i * 53 + n) % VOCABULARY);
    const request: GenerateRequest = {
      prompt,
      maxTokens: 20,
      ignoreEos: true,
      sampling: { temperature: n % 2, seed: n, repetitionPenalty: n === 2 ? 1.2 : 1 },
      ...WANTED[n],
    };
    const tokens: number[] = [];
    try {
      for await (const event of engine.submit(request)) {
        if (event.type === "token") tokens.push(event.token);
        if (event.type === "finish") assertEquals([event.reason, tokens.length], ["length", 20]);
      }
      const answers = getOrInsert(this.#answers, n, () => new Set<string>());
      answers.add(tokens.join());
      // An answer comes from the GPU or from the CPU, never from both.
      if (answers.size > 2) this.complaints.push(`request ${n} has ${answers.size} answers`);
      return "whole";
    } catch (error) {
      const code = error instanceof EngineError ? error.code : nameOf(error);
      const expected = ["device_lost", "engine_unavailable"].includes(code);
      if (!expected) this.complaints.push(`a stream ended with ${code}: ${error}`);
      return code;
    }
  }

  /** Throws if the operation hangs. */
  async #soon<T>(what: string, promise: Promise<T>): Promise<T> {
    const { promise: late, reject } = Promise.withResolvers<never>();
    let seconds = 0;
    const timer = setInterval(() => {
      if (++seconds < HANG_SECONDS) return;
      this.complaints.push(`round ${this.#round}: ${what} hangs`);
      reject(new Error(`${what} hangs`));
    }, 1000);
    try {
      return await Promise.race([promise, late]);
    } finally {
      clearInterval(timer);
    }
  }

  /** Checks that all resources of a round are freed. */
  async #check(before: number, moment: Moment): Promise<void> {
    const lost = this.injected > before;
    if (lost) this.#count(this.moments, moment);
    this.log(`round ${this.#round}, ${moment}: ${lost ? "lost" : "not lost"}; ${this.injected} so far`);
    // Operations in progress at the loss may end a little later.
    for (let i = 0; i < 100 && this.#buffers.size > 0; i++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    if (this.#buffers.size > 0) {
      this.complaints.push(`round ${this.#round}: ${this.#buffers.size} buffers were kept`);
    }
    this.#buffers.clear();
    for (const device of this.#devices) device.destroy();
    this.#devices.clear();
  }

  #lose(moment: Moment): void {
    if (this.#fuse?.moment !== moment || this.#devices.size === 0) return;
    this.#fuse = undefined;
    this.injected++;
    for (const device of this.#devices) device.destroy();
  }

  /** A call of the backend at which a device may be lost. */
  #at(moment: Moment): void {
    if (this.#fuse?.moment === moment && --this.#fuse.calls <= 0) this.#lose(moment);
  }

  #watch(): void {
    const devices = this.#devices;
    const wrap = <T extends object, K extends keyof T>(of: T, name: K, made: (original: T[K]) => T[K]) => {
      const original = of[name];
      of[name] = made(original);
      this.#restore.push(() => of[name] = original);
    };
    // deno-lint-ignore no-this-alias
    const losses = this;
    wrap(GPUAdapter.prototype, "requestDevice", (original) =>
      async function (this: GPUAdapter, descriptor) {
        const device = await original.call(this, descriptor);
        devices.add(device);
        return device;
      });
    // Makes "auto" select the GPU despite its software driver.
    wrap(CpuBackend.prototype, "step", (original) =>
      async function (this: CpuBackend, input) {
        if (losses.#loading) await new Promise((resolve) => setTimeout(resolve, 200));
        return await original.call(this, input);
      });
    wrap(GPUDevice.prototype, "createBuffer", (original) =>
      function (this: GPUDevice, descriptor) {
        losses.#at("load");
        const buffer = original.call(this, descriptor);
        losses.#buffers.add(buffer);
        return buffer;
      });
    wrap(GPUBuffer.prototype, "destroy", (original) =>
      function (this: GPUBuffer) {
        losses.#buffers.delete(this);
        return original.call(this);
      });
    wrap(GPUDevice.prototype, "createComputePipeline", (original) =>
      function (this: GPUDevice, descriptor) {
        losses.#at("compile");
        return original.call(this, descriptor);
      });
    wrap(GPUQueue.prototype, "submit", (original) =>
      function (this: GPUQueue, commands) {
        losses.#at("submit");
        return original.call(this, commands);
      });
    wrap(
      GPUQueue.prototype,
      "writeBuffer",
      (original) =>
        function (this: GPUQueue, ...args: Parameters<GPUQueue["writeBuffer"]>) {
          losses.#at("write");
          return original.apply(this, args);
        } as GPUQueue["writeBuffer"],
    );
    wrap(GPUBuffer.prototype, "mapAsync", (original) =>
      function (this: GPUBuffer, ...args) {
        const mapped = original.apply(this, args);
        losses.#at("map");
        return mapped;
      });
    wrap(GPUBuffer.prototype, "getMappedRange", (original) =>
      function (this: GPUBuffer, ...args) {
        losses.#at("read");
        return original.apply(this, args);
      });
  }

  #count(counts: Map<string, number>, what: string): void {
    counts.set(what, (counts.get(what) ?? 0) + 1);
  }

  /** Returns a random integer below `n`. */
  #random(n: number): number {
    this.seed = Math.imul(this.seed, 1664525) + 1013904223 >>> 0;
    return Math.floor(this.seed / 2 ** 32 * n);
  }
}

function getOrInsert<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) map.set(key, value = make());
  return value;
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : String(error);
}
