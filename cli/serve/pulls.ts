/** Downloads models for requests to /api/pull. */
import {
  listModels,
  type Offer,
  pull,
  type PulledModel,
  PullError,
  type PullErrorCode,
  type PullEvent,
  type PullOptions,
  SHIPPED_LIST,
} from "../../hub/mod.ts";
import { ApiError, type ModelPulls, type PullRow } from "../../lib/serving.ts";
import { asCalled, quoted } from "../shared/start.ts";

/** Maximum number of downloads that run or wait. One runs at a time, because they share the network. */
const MAX_DOWNLOADS = 8;
/** Milliseconds between two lines of progress. */
const ROW_MS = 100;
/** Default quantization if a repository has several, as in Ollama. */
const USUAL_QUANTIZATION = "Q4_K_M";

const VERIFYING: PullRow = { status: "verifying sha256 digest" };

const STATUS: Partial<Record<PullErrorCode, number>> = {
  PULL_NOT_FOUND: 404,
  PULL_DENIED: 404,
  PULL_BUSY: 409,
  PULL_EXISTS: 409,
  PULL_NETWORK: 502,
  PULL_PROTOCOL: 502,
  PULL_CHANGED: 502,
  PULL_CHECKSUM: 502,
  PULL_STOPPED: 503,
  PULL_DISK: 507,
};

/** Options for reaching the hub. Tests replace the delays between attempts. */
export type HubOptions = Pick<PullOptions, "endpoint" | "pace" | "freeMemory" | "freeSpace">;

/** Downloads into one folder of models. */
export class Pulls implements ModelPulls {
  readonly #downloads = new Map<string, Download>();
  /** Names by which clients have pulled a model, by the model's id. */
  readonly #names = new Map<string, Set<string>>();

  private constructor(
    private readonly folder: string,
    private readonly hub: HubOptions,
    private readonly onPulled: () => void,
  ) {}

  /** Opens the downloads. `onPulled` is called when a model has arrived in the folder. */
  static async open(folder: string, hub: HubOptions, onPulled: () => void): Promise<Pulls> {
    const pulls = new Pulls(folder, hub, onPulled);
    for (const { name, receipt } of (await listModels(folder)).models) {
      if (receipt) pulls.#name(name, receipt.source);
    }
    return pulls;
  }

  /** Returns the names by which clients pull the model with this id. */
  namesOf(id: string): readonly string[] {
    return [...this.#names.get(id) ?? []];
  }

  async *pull(name: string, signal: AbortSignal): AsyncGenerator<PullRow> {
    const source = sourceOf(name);
    // If all clients of a download have disconnected, it must end before the next download of the same model.
    for (let last = this.#downloads.get(source); last?.isStopping; last = this.#downloads.get(source)) {
      await last.ended;
    }
    const download = this.#downloads.get(source) ?? this.#begin(source);
    try {
      const model = yield* download.rows(signal);
      this.#name(model.name, source, name);
    } catch (error) {
      signal.throwIfAborted();
      throw this.#failure(error);
    }
    this.onPulled();
  }

  /** Stops all downloads. */
  async close(): Promise<void> {
    for (const download of this.#downloads.values()) download.stop();
    await Promise.all([...this.#downloads.values()].map(({ ended }) => ended));
  }

  #begin(source: string): Download {
    if (this.#downloads.size >= MAX_DOWNLOADS) {
      throw new ApiError(429, "too_many_pulls", `${MAX_DOWNLOADS} downloads run or wait; try again later`);
    }
    const before = [...this.#downloads.values()].at(-1);
    const download = new Download(async (signal, onEvent) => {
      await before?.ended;
      signal.throwIfAborted();
      return await pull({
        ...this.hub,
        source,
        models: this.folder,
        choose,
        signal,
        onEvent: (event) => {
          // A name must be known before the model is in the folder.
          if (event.kind === "begin") this.#name(event.name, source);
          onEvent(event);
        },
      });
    });
    this.#downloads.set(source, download);
    download.ended.then(() => this.#downloads.delete(source));
    return download;
  }

  #name(id: string, source: string, asked?: string): void {
    const listed = Object.entries(SHIPPED_LIST).filter((entry) => entry[1].source === source);
    const names = [source.replace(/^hf:/, "hf.co/"), ...listed.map(([name]) => name), asked ?? []].flat();
    this.#names.set(id, new Set([...this.namesOf(id), ...names].filter((name) => name !== id)));
  }

  /** Returns the error for the client, without advice for the command line and without the folder's path. */
  #failure(error: unknown): unknown {
    if (!(error instanceof PullError)) return error;
    const { code, message } = error;
    const shown = message.replaceAll(`"${this.folder}"`, "the server's folder of models")
      .replace(/[:;,] [^:;]*--[a-z].*$/s, "");
    return new ApiError(STATUS[code] ?? 400, code.toLowerCase(), shown, { param: "model" });
  }
}

/** Throws if this process may not reach the hub, or not write to the folder. */
export async function checkPulls(folder: string, endpoint: string | undefined): Promise<void> {
  const hub = endpoint === undefined ? {} : { host: new URL(endpoint).host };
  const net = (await Deno.permissions.query({ name: "net", ...hub })).state === "granted";
  const write = (await Deno.permissions.query({ name: "write", path: folder })).state === "granted";
  if (net && write) return;
  const what = net ? `write to "${folder}"` : "reach the hub";
  // The flag replaces the task's folders, so it must repeat the folder of files and batches.
  const flags = `--allow-net${write ? "" : ` --allow-write=.compy,${quoted(folder)}`}`;
  throw new Error(
    `Cannot download models for requests: this task may not ${what}. Allow it: ` +
      asCalled(`deno run -P=serve ${flags} main.ts serve --allow-pull --models ${quoted(folder)} …`),
  );
}

/** One download and the requests that wait for it. */
class Download {
  /** Resolves when the download no longer runs. */
  readonly ended: Promise<void>;
  readonly #abort = new AbortController();
  readonly #model: Promise<PulledModel>;
  #readers = 0;
  /** Stages of the download so far; the last one is current. */
  readonly #stages: PullRow[] = [];
  #isOver = false;
  #changed = Promise.withResolvers<void>();

  constructor(run: (signal: AbortSignal, onEvent: (event: PullEvent) => void) => Promise<PulledModel>) {
    this.#model = run(this.#abort.signal, (event) => this.#take(event));
    this.ended = this.#model.then(() => {}, () => {}).then(() => {
      this.#isOver = true;
      this.#wake();
    });
  }

  get isStopping(): boolean {
    return this.#abort.signal.aborted;
  }

  stop(): void {
    this.#abort.abort(new PullError("PULL_STOPPED", "The download was stopped; its bytes are kept"));
  }

  /** Yields each stage with its progress, and returns the model. The download stops when its last reader leaves. */
  async *rows(signal: AbortSignal): AsyncGenerator<PullRow, PulledModel> {
    const { promise: left, resolve: leave } = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => leave(), { once: true });
    this.#readers++;
    try {
      let shown: PullRow | undefined;
      for (let at = 0;;) {
        signal.throwIfAborted();
        const row = this.#stages.at(at);
        if (row && row !== shown) yield shown = row;
        const isLast = at + 1 >= this.#stages.length;
        if (!isLast) at++;
        else if (this.#isOver) return await this.#model;
        else {
          if (this.#stages.at(at) === shown) await Promise.race([this.#changed.promise, left]);
          await pause([left, this.ended]);
        }
      }
    } finally {
      if (--this.#readers === 0 && !this.#isOver) this.stop();
    }
  }

  #take(event: PullEvent): void {
    const last = this.#stages.at(-1);
    if (event.kind === "begin") {
      const { sha256, name, kept: completed, bytes: total } = event;
      const digest = sha256 === undefined ? {} : { digest: `sha256:${sha256}` };
      this.#stages.push({ status: `pulling ${sha256?.slice(0, 12) ?? name}`, ...digest, total, completed });
    } else if (event.kind === "download" && last) {
      this.#stages[this.#stages.length - 1] = { ...last, total: event.total, completed: event.done };
    } else if (event.kind === "check" && last !== VERIFYING) this.#stages.push(VERIFYING);
    else return;
    this.#wake();
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}

/** Waits until it is time for the next line of progress, or until one of the promises resolves. */
async function pause(others: readonly Promise<void>[]): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ROW_MS);
  await Promise.race([promise, ...others]);
  clearTimeout(timer);
}

/**
 * Returns the source for a name: `hf.co/OWNER/REPO` as Ollama's clients write it, compy's `hf:OWNER/REPO`, each with an
 * optional `:QUANTIZATION`, or a name of the list. A request cannot name any other address.
 */
function sourceOf(name: string): string {
  const source = name.replace(/^(?:https:\/\/)?(?:hf\.co|huggingface\.co)\//, "hf:").replace(/:latest$/, "");
  if (source.startsWith("hf:")) return source;
  if (Object.hasOwn(SHIPPED_LIST, source)) return SHIPPED_LIST[source].source;
  const known = Object.keys(SHIPPED_LIST).join(", ");
  const message = `Cannot pull ${JSON.stringify(name.slice(0, 100))}: must be hf.co/OWNER/REPO, ` +
    `hf.co/OWNER/REPO:QUANTIZATION, or one of ${known}`;
  throw new ApiError(400, "invalid_value", message, { param: "model" });
}

function choose({ choices, recommended }: Offer): Promise<Offer["choices"][number]["choice"]> {
  const usual = choices.find(({ choice }) => choice.quantisation === USUAL_QUANTIZATION);
  return Promise.resolve((usual ?? recommended ?? choices[0]).choice);
}
