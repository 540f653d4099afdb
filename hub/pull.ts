import { join } from "@std/path";
import type { Choice } from "./choices.ts";
import { checkSpace, describeDiskError, gigabytes } from "./disk.ts";
import { FileChanged, PullError } from "./errors.ts";
import { judge, machineMemory, type Verdict } from "./header.ts";
import { HubClient } from "./http.ts";
import { parseSha256, SHIPPED_LIST } from "./model_list.ts";
import { quote } from "./names.ts";
import { checkChoice, describeChoices, find, type Offer, refuseOpenChoice } from "./offer.ts";
import { RetryPolicy, sleep } from "./retry_policy.ts";
import { parseEndpoint, parseSource, type Source, sourceText } from "./source.ts";
import { finishPlacing, isComplete, place, readReceipt, type Receipt } from "./store.ts";
import { Transfer } from "./transfer.ts";
import {
  DEFAULT_CONNECTIONS,
  DEFAULT_ENDPOINT,
  type PulledModel,
  type PullEvent,
  type PullOptions,
} from "./types.ts";
import { type Piece, removeUnfinished, Unfinished } from "./unfinished.ts";
import { hashPiece } from "./verify.ts";

const SAVE_MS = 500;
/** Maximum number of versions of a file, and of wrong files, before giving up. */
const MOST_VERSIONS = 4;
const MOST_WRONG = 3;

/**
 * Downloads a model into a folder of models. Resumes existing bytes, checks lengths and hashes, and moves the
 * files into place at the end. Throws PullError, Deno's file errors, and the signal's reason.
 */
export async function pull(options: PullOptions): Promise<PulledModel> {
  return await new Pull(options).run();
}

/** Returns a source's models and their needs here. Downloads at most a header. Throws as `pull`. */
export async function offer(options: PullOptions): Promise<Offer> {
  return await new Pull(options).offer();
}

class Pull {
  readonly #options: PullOptions;
  readonly #source: Source;
  readonly #sha256: string | undefined;
  readonly #client: HubClient;
  readonly #retries: RetryPolicy;
  readonly #shown = { download: 0, check: 0 };
  #fetched = 0;
  /** Whether the "begin" event was already sent. */
  #begun = false;

  constructor(options: PullOptions) {
    const { source, list = {}, endpoint = DEFAULT_ENDPOINT, token, pace, sha256 } = options;
    this.#options = options;
    const all = { ...SHIPPED_LIST, ...list };
    const listed = Object.hasOwn(all, source) ? all[source] : undefined;
    this.#source = parseSource(listed?.source ?? source);
    const given = sha256 ?? listed?.sha256;
    this.#sha256 = given === undefined ? undefined : parseSha256(given);
    this.#client = new HubClient({ endpoint: parseEndpoint(endpoint), token, stallMs: pace?.stallMs });
    this.#retries = new RetryPolicy(pace, (message) => this.#note(message));
  }

  async offer(): Promise<Offer> {
    await Deno.mkdir(this.#options.models, { recursive: true });
    const { offer, read } = await describeChoices(this.#source, await this.#find(), this.#search());
    if (read) await removeUnfinished(this.#options.models, read.name);
    return offer;
  }

  async run(): Promise<PulledModel> {
    const { models } = this.#options;
    try {
      await Deno.mkdir(models, { recursive: true });
      let taken: Choice | undefined;
      for (let versions = 1;; versions++) {
        const found = await this.#find();
        // If the repository changed meanwhile, the earlier choice is kept.
        const path = taken?.pieces[0].path;
        taken = found.choices.find(({ pieces }) => path !== undefined && pieces[0].path === path) ??
          await this.#choose(found);
        try {
          return await this.#pullChoice(checkChoice(taken, this.#options.as), found.commit);
        } catch (error) {
          if (!(error instanceof FileChanged)) throw error;
          if (versions >= MOST_VERSIONS) {
            throw new PullError(
              "PULL_CHANGED",
              `${error.message}, for the ${versions}th time: try again later`,
            );
          }
          this.#note(`${error.message}: reading the hub's list again`);
        }
      }
    } catch (error) {
      throw describeDiskError(error, models);
    }
  }

  #find() {
    const { as, signal } = this.#options;
    const search = { source: this.#source, as, sha256: this.#sha256 };
    return find(search, this.#client, this.#retries, signal);
  }

  #search() {
    const { models, signal, freeMemory } = this.#options;
    return { models, client: this.#client, retries: this.#retries, signal, free: freeMemory };
  }

  async #choose(found: Awaited<ReturnType<typeof find>>): Promise<Choice> {
    const { choose, models } = this.#options;
    if (found.choices.length === 1) return found.choices[0];
    if (!choose) refuseOpenChoice(this.#source, found);
    const { offer, read } = await describeChoices(this.#source, found, this.#search());
    let chosen: Choice | undefined;
    try {
      chosen = await choose(offer);
      return chosen;
    } finally {
      if (read && read !== chosen) await removeUnfinished(models, read.name);
    }
  }

  async #pullChoice(choice: Choice, commit: string | undefined): Promise<PulledModel> {
    const { models } = this.#options;
    const unfinished = await Unfinished.open(models, choice.name);
    try {
      await finishPlacing(models, unfinished.folder, choice.name);
      const there = await this.#present(choice);
      if (there) {
        await unfinished.remove();
        return there;
      }
      const receipt = await this.#download(unfinished, choice, commit);
      await place(models, unfinished.folder, choice.name, receipt);
      await unfinished.remove();
      return this.#pulled(choice.name, receipt, false);
    } catch (error) {
      if (error instanceof PullError && error.code === "PULL_EXISTS") await unfinished.removeIfNew();
      throw error;
    } finally {
      unfinished.close();
    }
  }

  #pulled(name: string, receipt: Receipt, already: boolean): PulledModel {
    const bytes = receipt.files.reduce((sum, { size }) => sum + size, 0);
    const path = join(this.#options.models, receipt.files[0].name);
    return { name, path, bytes, receipt, already, fetched: this.#fetched };
  }

  /** Returns the model if this version is already here. Throws PullError if another model has its name. */
  async #present(choice: Choice): Promise<PulledModel | undefined> {
    const { models } = this.#options;
    const receipt = await readReceipt(models, choice.name);
    if (!receipt) {
      for (const { file } of choice.pieces) {
        if (!await exists(join(models, file))) continue;
        throw new PullError(
          "PULL_EXISTS",
          `"${join(models, file)}" exists and was not pulled: choose another name with --as NAME`,
        );
      }
      return undefined;
    }
    const known = receipt.files.flatMap(({ parts }) => parts);
    const sameOrigin = repositoryOf(receipt.source) === repositoryOf(sourceText(this.#source)) &&
      choice.pieces[0].path === known[0].path;
    const same = choice.pieces.length === known.length &&
      choice.pieces.every(({ sha256 }, i) => sha256 === undefined ? sameOrigin : sha256 === known[i].sha256);
    if (same && await isComplete(models, receipt)) return this.#pulled(choice.name, receipt, true);
    if (sameOrigin) return undefined; // another version replaces the model
    throw new PullError(
      "PULL_EXISTS",
      `${quote(choice.name)} was pulled from ${receipt.source} (${
        quote(known[0].path)
      }): choose another name with ` +
        `--as NAME, or remove it first`,
    );
  }

  /** Fetches and checks all pieces. Throws as `pull`, and FileChanged. */
  async #download(unfinished: Unfinished, choice: Choice, commit: string | undefined): Promise<Receipt> {
    const { models, signal, freeSpace } = this.#options;
    const { kept, dropped } = await unfinished.begin(sourceText(this.#source), choice.pieces);
    const { pieces } = unfinished;
    if (dropped > 0) {
      this.#note("The file on the hub has changed since the download began: starting again");
    }
    if (choice.bytes !== undefined) await checkSpace(models, choice.bytes - kept, freeSpace);
    const abort = new AbortController();
    const both = signal ? AbortSignal.any([signal, abort.signal]) : abort.signal;
    try {
      return await saving(unfinished, abort, async () => {
        using transfer = this.#transfer(both, pieces);
        const verdict = await judge(transfer, pieces);
        const bytes = sum(pieces, ({ size }) => size!);
        const files = [...new Set(pieces.map(({ remote }) => remote.file))];
        this.#tell({
          kind: "begin",
          name: choice.name,
          source: sourceText(this.#source),
          files,
          bytes,
          sha256: pieces[0].remote.sha256,
          kept,
        });
        this.#begun = true;
        this.#checkVerdict(verdict);
        await checkSpace(models, bytes - sum(pieces, ({ done }) => done.bytes), freeSpace);
        const hashes = await this.#fetchRight(transfer, pieces, both);
        return this.#receipt(pieces, hashes, commit);
      });
    } catch (error) {
      if (error instanceof FileChanged) forgetUnnamed(pieces);
      await unfinished.saveLast();
      if (error instanceof PullError && (error.code === "PULL_MODEL" || error.code === "PULL_CHECKSUM")) {
        await unfinished.remove(); // none of its bytes are useful
      }
      throw error;
    }
  }

  #transfer(signal: AbortSignal, pieces: readonly Piece[]): Transfer {
    const total = () => sum(pieces, ({ size }) => size ?? 0);
    return new Transfer({
      client: this.#client,
      retries: this.#retries,
      signal,
      onBytes: (count) => {
        this.#fetched += count;
        this.#progress("download", sum(pieces, ({ done }) => done.bytes), total());
      },
    });
  }

  /** Checks the header before further bytes are fetched. Throws PullError for a model that cannot run here. */
  #checkVerdict(verdict: Verdict): void {
    const { anyway, freeMemory: free = machineMemory() } = this.#options;
    if ("refusal" in verdict) {
      if (!anyway) {
        throw new PullError(
          "PULL_MODEL",
          `compy cannot run this model: ${verdict.refusal}; --anyway pulls it nevertheless`,
        );
      }
      this.#note(`compy cannot run this model: ${verdict.refusal}`);
      return;
    }
    const { needs } = verdict;
    const bytes = needs.weights + needs.rest;
    const fits = free === undefined || bytes <= free;
    this.#tell({ kind: "needs", needs, free, fits });
    if (fits || anyway) return;
    throw new PullError(
      "PULL_MEMORY",
      `The model needs ${
        gigabytes(bytes)
      } of memory with one sequence of ${needs.contextLength} tokens, and ` +
        `${gigabytes(free)} are free here: take a smaller quantisation, or --anyway to pull it nevertheless`,
    );
  }

  /** Fetches the pieces until they match the promised hashes. Returns each piece's hash. */
  async #fetchRight(transfer: Transfer, pieces: readonly Piece[], signal: AbortSignal): Promise<string[]> {
    const { connections = DEFAULT_CONNECTIONS } = this.#options;
    for (let tries = 1;; tries++) {
      await transfer.all(pieces, connections);
      const hashes = await this.#hash(pieces, signal);
      const wrong = pieces.filter(({ remote }, i) =>
        remote.sha256 !== undefined && remote.sha256 !== hashes[i]
      );
      if (wrong.length === 0) return hashes;
      const { remote } = wrong[0];
      const what = `the downloaded bytes of ${quote(remote.path)} do not have the SHA-256 ${remote.sha256}`;
      for (const { done, validators } of wrong) {
        done.clear();
        validators.clear();
      }
      if (tries >= MOST_WRONG) {
        throw new PullError(
          "PULL_CHECKSUM",
          `Tried ${tries} times, ${what}: something between the hub and this machine changes the data`,
        );
      }
      this.#note(`${what}: fetching it again`);
    }
  }

  async #hash(pieces: readonly Piece[], signal: AbortSignal): Promise<string[]> {
    const total = sum(pieces, ({ size }) => size!);
    let done = 0;
    const hashes: string[] = [];
    for (const piece of pieces) {
      const onBytes = (count: number) => this.#progress("check", done += count, total);
      hashes.push(await hashPiece(piece, onBytes, signal));
    }
    return hashes;
  }

  #receipt(pieces: readonly Piece[], hashes: readonly string[], commit: string | undefined): Receipt {
    const named = pieces.map((piece, i) => ({ piece, sha256: hashes[i] }));
    const files = [...Map.groupBy(named, ({ piece }) => piece.remote.file)].map(([name, parts]) => ({
      name,
      size: sum(parts, ({ piece }) => piece.size!),
      parts: parts.map(({ piece: { remote }, sha256 }) => ({
        path: remote.path,
        sha256,
        promised: remote.sha256 !== undefined,
      })),
    }));
    return { source: sourceText(this.#source), commit, pulled: new Date().toISOString(), files };
  }

  #progress(kind: "download" | "check", done: number, total: number): void {
    this.#shown[kind] = Math.max(this.#shown[kind], done);
    if (this.#begun) this.#tell({ kind, done: Math.min(total, this.#shown[kind]), total });
  }

  #note(message: string): void {
    this.#tell({ kind: "note", message });
  }

  #tell(event: PullEvent): void {
    this.#options.onEvent?.(event);
  }
}

/** Saves progress while `work` runs, so that a killed process loses little. */
async function saving<T>(unfinished: Unfinished, abort: AbortController, work: () => Promise<T>): Promise<T> {
  const end = new AbortController();
  const loop = async () => {
    while (!end.signal.aborted) {
      await sleep(SAVE_MS, end.signal).catch(() => {});
      await unfinished.save();
    }
  };
  const saved = loop().catch((error) => abort.abort(error));
  try {
    return await work();
  } finally {
    end.abort();
    await saved;
    abort.signal.throwIfAborted();
  }
}

/** Drops bytes that may belong to another version, if no hash can check them. */
function forgetUnnamed(pieces: readonly Piece[]): void {
  for (const piece of pieces) {
    if (piece.remote.sha256 !== undefined) continue;
    piece.done.clear();
    piece.validators.clear();
    piece.size = piece.remote.size;
  }
}

/** Returns a source's text without its revision and file. */
function repositoryOf(source: string): string {
  return /^hf:[^@:]+/.exec(source)?.[0] ?? source;
}

async function exists(path: string): Promise<boolean> {
  return await Deno.lstat(path).then(() => true, () => false);
}

function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}
