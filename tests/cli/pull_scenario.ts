import { fromFileUrl, join } from "@std/path";
import { pull, PullError, type PullOptions } from "../../hub/mod.ts";
import { type Fault, type SeenRequest, TestHub } from "../../hub/testing_hub.ts";
import { sha256, testModel } from "../../hub/testing_models.ts";
import { Random } from "../../testing/random.ts";

/**
 * Pulls models through a hub with every fault (`deno task storms --only pulls`). Each downloaded file is compared with
 * the hub's, and the downloaded bytes with its size.
 */

export interface PullCampaign {
  readonly downloads: number;
  readonly seed: number;
  /** Number of concurrent downloads. */
  readonly together?: number;
}

export interface PullOutcome {
  readonly downloads: number;
  /** Number of files that differ from the hub's. */
  readonly wrong: number;
  /** Downloads that ended with an error. */
  readonly failed: readonly string[];
  /** Mean of downloaded bytes over model size. */
  readonly fetched: number;
  /** Mean of the bytes sent by the hub over model size, including bytes that were never read. */
  readonly sent: number;
  /** Number of occurrences per fault. */
  readonly faults: Readonly<Record<string, number>>;
}

const SMALLEST = 20_000;
const LARGEST = 8_000_000;

/** Delay in milliseconds per 64 KiB of a download that will be killed, so that it takes long enough. */
const SLOW_MS = 8;
const PACE = { baseMs: 2, capMs: 50, attempts: 20, totalMs: 60_000, stallMs: 1000 };

/** Faults of a whole download, with their percentages. */
const MISHAPS: readonly [mishap: Mishap, percent: number][] = [
  ["corrupt", 3],
  ["change", 2],
  ["no ranges", 3],
  ["kill", 5],
  ["stop", 10],
];

type Mishap = "corrupt" | "change" | "no ranges" | "kill" | "stop" | "none";

/** Faults of a request for file bytes, in per mille. */
const FAULTS: readonly [permille: number, make: (random: Random, bytes: number) => Fault][] = [
  [90, (random, bytes) => ({ kind: "drop", after: below(random, bytes) })],
  [5, (random, bytes) => ({ kind: "stall", after: below(random, bytes) })],
  [20, () => ({ kind: "status", status: 503 })],
  [20, () => ({ kind: "status", status: 429, retryAfter: "0" })],
  [10, () => ({ kind: "status", status: 403 })],
  [5, () => ({ kind: "status", status: 404 })],
  [20, () => ({ kind: "short range" })],
  [10, () => ({ kind: "other range" })],
  [10, (random) => ({ kind: "wrong length", by: below(random, 1000) - 500 })],
  [20, () => ({ kind: "ignore range" })],
  [10, () => ({ kind: "encoding" })],
  [10, () => ({ kind: "page" })],
];

/** Pulls this many models, each from a separate repository. */
export async function pullCampaign({ downloads, seed, together = 4 }: PullCampaign): Promise<PullOutcome> {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  const faults: Record<string, number> = {};
  const failed: string[] = [];
  let [wrong, fetched, sent, next] = [0, 0, 0, 0];
  const one = async () => {
    while (next < downloads) {
      const number = next++;
      const download = new Download(seed + number, faults);
      try {
        const ratio = await download.run(join(folder, String(number)));
        wrong += ratio.right ? 0 : 1;
        fetched += ratio.fetched;
        sent += ratio.sent;
      } catch (error) {
        failed.push(`seed ${seed + number}: ${error instanceof Error ? error.message : error}`);
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: together }, one));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  const done = Math.max(1, downloads - failed.length);
  return { downloads, wrong, failed, fetched: fetched / done, sent: sent / done, faults };
}

/** One model, its hub, and its faults. */
class Download {
  readonly #random: Random;
  readonly #mishap: Mishap;
  readonly #file: string;
  readonly #repo: string;
  readonly #bytes: Uint8Array<ArrayBuffer>;
  /** Whether the hub publishes the file's hash. A plain URL has none, so its first answer is final. */
  readonly #promised: boolean;
  readonly #faults: Record<string, number>;
  #hub: TestHub | undefined;
  #asked = 0;
  /** The index of the faulty request for bytes. */
  readonly #when: number;

  constructor(private readonly seed: number, faults: Record<string, number>) {
    this.#random = new Random(seed);
    this.#faults = faults;
    this.#mishap = this.#draw();
    const size = SMALLEST * (LARGEST / SMALLEST) ** (below(this.#random, 1000) / 1000);
    this.#bytes = testModel(seed, size);
    this.#promised = this.#mishap === "corrupt" || seed % 5 > 0;
    this.#repo = `me/m${seed}-GGUF`;
    this.#file = `m${seed}-Q8_0.gguf`;
    this.#when = below(this.#random, Math.ceil(this.#bytes.length / 2 ** 20));
  }

  async run(models: string): Promise<{ right: boolean; fetched: number; sent: number }> {
    await using hub = new TestHub({
      repositories: { [this.#repo]: { [this.#file]: this.#bytes } },
      fault: (request) => this.#fault(request),
      delayMs: this.#mishap === "kill" ? SLOW_MS : undefined,
    });
    this.#hub = hub;
    const source = this.#promised ? `hf:${this.#repo}:Q8_0` : `${hub.cdn}/${this.#repo}/${this.#file}`;
    const options = { source, models, endpoint: hub.endpoint, pace: PACE, freeMemory: 1e9 };
    if (this.#mishap !== "none") this.#count(`download: ${this.#mishap}`);
    if (this.#mishap === "kill") await this.#killed(options);
    if (this.#mishap === "stop") await this.#stopped(options);
    // The bytes that these processes read are unknown, so all sent bytes count.
    const fetched = hub.sent + (await pull(options)).fetched;
    const there = await Deno.readFile(join(models, this.#file));
    const right = sha256(there) === sha256(hub.file(`${this.#repo}/${this.#file}`)!);
    await Deno.remove(models, { recursive: true });
    return { right, fetched: fetched / there.length, sent: hub.sent / there.length };
  }

  /** Pulls in a separate process and kills it during the download. */
  async #killed(options: PullOptions): Promise<void> {
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-q",
        "--no-check",
        "-P=test",
        fromFileUrl(new URL("./pull_child.ts", import.meta.url)),
        JSON.stringify(options),
      ],
      cwd: fromFileUrl(new URL("../..", import.meta.url)),
      stdout: "null",
      stderr: "null",
    }).spawn();
    const enough = below(this.#random, this.#bytes.length);
    let ended = false;
    const status = child.status.then(() => ended = true);
    while (!ended && this.#hub!.sent < enough) await new Promise((resolve) => setTimeout(resolve, 5));
    if (!ended) child.kill("SIGKILL");
    await status;
  }

  async #stopped(options: PullOptions): Promise<void> {
    const stop = new AbortController();
    const enough = below(this.#random, this.#bytes.length);
    try {
      const onEvent: PullOptions["onEvent"] = (event) => {
        if (event.kind === "download" && event.done >= enough) {
          stop.abort(new PullError("PULL_STOPPED", "stopped"));
        }
      };
      await pull({ ...options, signal: stop.signal, onEvent });
    } catch (error) {
      if (!(error instanceof PullError) || error.code !== "PULL_STOPPED") throw error;
    }
  }

  #fault({ host, range }: SeenRequest): Fault | undefined {
    if (host === "hub") {
      return below(this.#random, 100) < 5 ? this.#met({ kind: "status", status: 502 }) : undefined;
    }
    const asked = this.#asked++;
    if (this.#mishap === "change" && asked === this.#when) {
      this.#hub!.change(`${this.#repo}/${this.#file}`, testModel(this.seed + 1e6, this.#bytes.length));
    }
    if (this.#mishap === "corrupt" && asked === this.#when) return this.#met({ kind: "corrupt" });
    const bytes = range ? Math.min(range[1], this.#bytes.length) - range[0] : this.#bytes.length;
    let drawn = below(this.#random, 1000);
    for (const [permille, make] of FAULTS) {
      if (drawn < permille) {
        const fault = make(this.#random, bytes);
        return this.#promised || !isFinal(fault) ? this.#met(fault) : undefined;
      }
      drawn -= permille;
    }
    return this.#mishap === "no ranges" ? { kind: "ignore range" } : undefined;
  }

  #draw(): Mishap {
    let drawn = below(this.#random, 100);
    for (const [mishap, percent] of MISHAPS) {
      if (drawn < percent) return mishap;
      drawn -= percent;
    }
    return "none";
  }

  #met(fault: Fault): Fault {
    this.#count("status" in fault ? `status ${fault.status}` : fault.kind);
    return fault;
  }

  #count(what: string): void {
    this.#faults[what] = (this.#faults[what] ?? 0) + 1;
  }
}

/** Whether a fault at an address is final, because the address was requested directly and not through a redirect. */
function isFinal(fault: Fault): boolean {
  return fault.kind === "page" || (fault.kind === "status" && fault.status < 408);
}

function below(random: Random, n: number): number {
  return random.word() % Math.max(1, Math.floor(n));
}
