import { checkInput, type InputCheck, type InputLimits } from "./check.ts";
import type { DataFolder } from "./data_folder.ts";
import { type Execute, UnansweredLine } from "./dispatch.ts";
import { BatchError } from "./errors.ts";
import { openJsonLines } from "./input.ts";
import { ProgressMeter, type ProgressView } from "./progress.ts";
import { identityDifference, type ModelIdentity } from "./model_identity.ts";
import { modelOf } from "./look_ahead.ts";
import type { BatchRequest, LineRefusal } from "./request.ts";
import { type BatchProgress, journalPath, runBatch } from "./runner.ts";
import type { Storage } from "./storage.ts";
import type { BatchStore } from "./store.ts";
import { type BatchProblem, type BatchRecord, type EndedStatus, type FileRecord, hasEnded } from "./types.ts";

export interface QueueOptions {
  readonly store: BatchStore;
  readonly folder: DataFolder;
  /** Where the folder is. */
  readonly storage: Storage;
  /** Answers a line for an owner. */
  readonly execute: (owner: string, request: Parameters<Execute>[0]) => ReturnType<Execute>;
  /** A batch resumes only with the models that it began with: the only one, or what those are that its lines name. */
  readonly settings: ModelIdentity | ((models: readonly string[]) => Promise<ModelIdentity>);
  /** Batches of different models that are answered side by side; default 1. */
  readonly lanes?: number;
  /** What computes; a batch may resume on another, which is reported. */
  readonly processor?: () => string;
  /** No batch is begun before; by default all are at once. */
  readonly ready?: Promise<unknown>;
  /** Lines in flight. */
  readonly parallel: number;
  readonly limits: InputLimits;
  /** Milliseconds that a batch pauses after a failure that may pass, such as a full disk or no descriptors. */
  readonly pauseMs: number;
  /** Unix seconds. */
  readonly now: () => number;
  /** Called with what an operator should know. */
  readonly report: (error: unknown) => void;
}

/** A batch in progress. */
interface Live {
  /** The models that answer it. */
  readonly key: string;
  isAnswering: boolean;
  readonly abort: AbortController;
  ending: BatchRecord["ending"];
  readonly meter: ProgressMeter;
  /** Found in the prefix cache, and thought, by earlier runs. */
  readonly cachedTokens: number;
  readonly reasoningTokens: number;
}

/** Bad lines that a failed batch names; the rest is counted. */
const MAX_PROBLEMS = 1000;
/** Names of models that are taken down of a batch, and characters of each. */
const MAX_MODELS = 64;
const MAX_NAME = 256;

/**
 * Works through the batches of a store: one lane checks files and ends what was cancelled, so that neither waits for the
 * model; the other answers lines, one batch after the other, oldest first.
 */
export class BatchQueue {
  readonly #live = new Map<string, Live>();
  /** Those whose models are here as they were when they began. */
  readonly #resumable = new Set<string>();
  /** Why batches wait, as the operator was told. */
  readonly #told = new Map<string, string>();
  /** Until when a batch pauses, in milliseconds. */
  readonly #paused = new Map<string, number>();
  /** Batches that have ended in this process. */
  readonly ended: Record<EndedStatus, number> = { completed: 0, failed: 0, expired: 0, cancelled: 0 };
  readonly #drain = new AbortController();
  readonly #lanes: Promise<unknown>;
  #wake = Promise.withResolvers<void>();

  constructor(private readonly options: QueueOptions) {
    let isReady = options.ready === undefined;
    options.ready?.then(() => {
      isReady = true;
      this.wake();
    });
    const isUnchecked = (batch: BatchRecord) =>
      (batch.status === "validating" && isReady) || batch.ending !== null;
    const isAnswerable = (batch: BatchRecord) =>
      !isUnchecked(batch) && !this.#isAnswered(keyOf(batch)) && this.#resumable.has(batch.id);
    const compare = async () => {
      if (isReady) await this.#compare().catch(options.report);
    };
    const lanes = Array.from({ length: options.lanes ?? 1 }, () => this.#lane(isAnswerable, compare));
    this.#lanes = Promise.all([this.#lane(isUnchecked), ...lanes]);
  }

  /** Finds out which batches can be answered; tells of each that has to wait, once. */
  async #compare(): Promise<void> {
    for (const batch of this.options.store.unfinished()) {
      const difference = await this.#difference(batch);
      if (difference === undefined) {
        this.#resumable.add(batch.id);
        continue;
      }
      this.#resumable.delete(batch.id);
      const message = `Batch ${batch.id} waits for the model that it began with: ${difference}`;
      if (this.#told.get(batch.id) !== difference) this.options.report(new Error(message));
      this.#told.set(batch.id, difference);
    }
  }

  /** Whether a batch of these models is answered now: another has its turn afterwards. */
  #isAnswered(key: string): boolean {
    return this.#live.values().some((live) => live.isAnswering && live.key === key);
  }

  /** Call when there is something new to do. */
  wake(): void {
    this.#wake.resolve();
    this.#wake = Promise.withResolvers<void>();
  }

  /** A batch is to end without the answers that it does not have yet; the store knows it already. */
  end(id: string, ending: NonNullable<BatchRecord["ending"]>): void {
    this.#paused.delete(id);
    const live = this.#live.get(id);
    if (live !== undefined) {
      live.ending = ending;
      live.abort.abort();
    }
    this.wake();
  }

  /** The progress of a batch that is being answered now. */
  view(id: string): ProgressView | undefined {
    return this.#live.get(id)?.meter.view();
  }

  /** Takes no new lines; resolves when those in flight have ended. The rest resumes at the next start. */
  async stop(): Promise<void> {
    this.#drain.abort();
    this.wake();
    await this.#lanes;
  }

  /** What the model has that is not as in the one that the batch began with; undefined before it began. */
  async #difference(batch: BatchRecord): Promise<string | undefined> {
    if (batch.settings === null) return undefined;
    try {
      return identityDifference(batch.settings, await this.#identity(batch.models));
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  /** Those of the models that there are: lines of others are errors, and what may come under their names later is no change. */
  async #answering(models: readonly string[]): Promise<string[]> {
    const known = await Promise.all(models.map((model) => this.#identity([model])));
    return models.filter((_, i) => Object.keys(known[i]).length > 0);
  }

  async #identity(models: readonly string[] = []): Promise<ModelIdentity> {
    const { settings } = this.options;
    return typeof settings === "function" ? await settings(models) : settings;
  }

  async #lane(isMine: (batch: BatchRecord) => boolean, prepare = () => Promise.resolve()): Promise<void> {
    while (!this.#drain.signal.aborted) {
      const { promise } = this.#wake;
      await prepare();
      const batch = this.#next(isMine);
      if (batch === undefined) await promise;
      else await this.#work(batch);
    }
  }

  #next(isMine: (batch: BatchRecord) => boolean): BatchRecord | undefined {
    const isPaused = (id: string) => performance.now() < (this.#paused.get(id) ?? 0);
    try {
      return this.options.store.unfinished().find((batch) =>
        !this.#live.has(batch.id) && !isPaused(batch.id) && isMine(batch)
      );
    } catch (error) {
      this.options.report(error);
      setTimeout(() => this.wake(), this.options.pauseMs);
    }
  }

  async #work(batch: BatchRecord): Promise<void> {
    const live: Live = {
      key: keyOf(batch),
      isAnswering: batch.status !== "validating" && batch.ending === null,
      abort: new AbortController(),
      ending: batch.ending,
      meter: new ProgressMeter(() => performance.now()),
      cachedTokens: batch.counts.cachedTokens,
      reasoningTokens: batch.counts.reasoningTokens,
    };
    this.#live.set(batch.id, live);
    try {
      if (batch.status === "validating" && live.ending === null) await this.#validate(batch, live);
      else await this.#answer(batch, live);
      this.#told.delete(batch.id);
    } catch (error) {
      this.#failed(batch, error);
    } finally {
      this.#live.delete(batch.id);
      this.#resumable.delete(batch.id);
      this.wake();
    }
  }

  async #validate(batch: BatchRecord, live: Live): Promise<void> {
    const { store, now } = this.options;
    const problems: BatchProblem[] = [];
    const models = new Set<string>();
    let check: InputCheck;
    const signal = AbortSignal.any([this.#drain.signal, live.abort.signal]);
    try {
      check = await this.#check(batch, signal, ({ code, message, line, param }) => {
        if (problems.length < MAX_PROBLEMS) problems.push({ code, message, line, param });
      }, models);
    } catch (error) {
      if (signal.aborted) return; // the other way of ending finds it
      throw error;
    }
    if (batch.strict && check.refusedCount > 0) {
      const more = check.refusedCount - problems.length;
      if (more > 0) problems.push(problem("more_errors", `${more} more lines are bad`));
      this.#fail(batch, problems);
      return;
    }
    store.setCounts(batch.id, { ...batch.counts, total: check.lineCount });
    const named = await this.#answering([...models].sort());
    const settings = await this.#identity(named);
    this.#change(batch, { status: "in_progress", inProgressAt: now(), settings, models: named });
  }

  async #check(
    batch: BatchRecord,
    signal: AbortSignal,
    onRefusal: (refusal: LineRefusal) => void,
    models: Set<string>,
  ): Promise<InputCheck> {
    const input = this.#input(batch);
    const file = await openJsonLines(this.options.storage, input);
    try {
      const limits = { ...this.options.limits, endpoint: batch.endpoint };
      const examine = (request: BatchRequest) => {
        if (models.size < MAX_MODELS) models.add(modelOf(request).slice(0, MAX_NAME));
        return Promise.resolve(undefined);
      };
      return await checkInput(file, input, limits, onRefusal, { signal, examine });
    } finally {
      file.close();
    }
  }

  async #answer(batch: BatchRecord, live: Live): Promise<void> {
    const { folder, storage, store, now, processor, limits, report } = this.options;
    // One that ended before it began needs no model.
    const settings = batch.settings ?? (live.ending === null ? await this.#identity(batch.models) : {});
    const job = folder.job(batch.id);
    await Deno.mkdir(folder.at(job.folder), { recursive: true, mode: 0o700 });
    await storage.syncFolderOf(folder.at(job.folder));
    const output = folder.at(job.output);
    const errors = folder.at(job.errors);
    const result = await runBatch({
      input: this.#input(batch),
      output,
      errors,
      storage,
      // Lines that get no answer cost nothing but their place in the journal.
      parallel: live.ending === null ? this.options.parallel : 256,
      limits: { ...limits, endpoint: batch.endpoint },
      drainSignal: this.#drain.signal,
      connect: () =>
        Promise.resolve({
          settings,
          processor: live.ending === null ? processor?.() : undefined,
          execute: (request) => this.#execute(batch, live, request),
        }),
      onEvent: (event) => {
        if (event.type === "finishing") {
          const status = live.ending === "cancel" ? "cancelling" : "finalizing";
          this.#change(batch, { status, finalizingAt: now() });
        } else if (event.type === "other_processor") {
          const message = `Batch ${batch.id} was begun on ${event.before} and resumes on ${event.now}`;
          report(new Error(`${message}, which rounds otherwise: texts may differ from those of one machine`));
        } else if (event.type !== "refused") {
          live.meter.update(event.progress);
          store.setCounts(batch.id, countsOf(event.progress, live));
        }
      },
    });
    if (result.state === "stopped") return;
    await this.#finish(batch);
    // The database says now how the job ended.
    await folder.remove(journalPath(job.output)).catch(() => {});
  }

  async #execute(batch: BatchRecord, live: Live, request: Parameters<Execute>[0]) {
    if (live.ending !== null) throw unanswered(live.ending);
    const signal = AbortSignal.any([request.signal, live.abort.signal]);
    try {
      const answer = await this.options.execute(batch.owner, { ...request, signal });
      await this.#checkModels(batch);
      return answer;
    } catch (error) {
      throw live.ending === null ? error : unanswered(live.ending);
    }
  }

  /** A model may have been unloaded, and loaded again from a file that has changed: its answers are not this batch's. */
  async #checkModels({ settings, models }: BatchRecord): Promise<void> {
    if (settings === null || typeof this.options.settings !== "function") return;
    // A loaded model may outlive its file.
    const now = await this.#identity(models).catch(() => settings);
    const difference = identityDifference(settings, now);
    if (difference === undefined) return;
    throw new BatchError(
      "engine_unavailable",
      `The model that it began with has changed: ${difference}`,
      true,
    );
  }

  /** Makes the job's files files of the API and says how the batch ended, in one change. */
  async #finish(batch: BatchRecord): Promise<void> {
    const { folder, store, now } = this.options;
    const job = folder.job(batch.id);
    const output = await this.#outputFile(batch, job.output, "output");
    const error = await this.#outputFile(batch, job.errors, "error");
    const { ending } = store.batch(batch.owner, batch.id);
    const at = now();
    this.#change(
      batch,
      {
        outputFileId: output?.id ?? null,
        errorFileId: error?.id ?? null,
        ...(ending === "cancel"
          ? { status: "cancelled", cancelledAt: at }
          : ending === "expire"
          ? { status: "expired", expiredAt: at }
          : { status: "completed", completedAt: at }),
      },
      [output, error].filter((file) => file !== undefined),
    );
  }

  /** undefined when nothing went there. */
  async #outputFile(batch: BatchRecord, path: string, kind: string): Promise<FileRecord | undefined> {
    const { folder, storage, now } = this.options;
    const found = await storage.stat(folder.at(path));
    if (found === undefined || found.size === 0) return undefined;
    const createdAt = now();
    return {
      id: newId("file-"),
      owner: batch.owner,
      bytes: found.size,
      createdAt,
      expiresAt: batch.outputSeconds === null ? null : createdAt + batch.outputSeconds,
      filename: `${batch.id}_${kind}.jsonl`,
      purpose: "batch_output",
      path,
    };
  }

  #failed(batch: BatchRecord, error: unknown): void {
    const { report, pauseMs } = this.options;
    try {
      if (error instanceof BatchError && (!error.resumable || error.code === "input_changed")) {
        this.#fail(batch, [problem(error.code, this.#publicWords(batch, error.message))]);
        if (error.code === "sync_failed") report(error);
        return;
      }
    } catch (another) {
      report(another);
    }
    const { what, cause } = reasonOf(error);
    const message = `Batch ${batch.id} pauses, and is tried again every ${pauseMs / 1000} s: ${what}`;
    if (this.#told.get(batch.id) !== message) report(new Error(message, { cause }));
    this.#told.set(batch.id, message);
    this.#paused.set(batch.id, performance.now() + pauseMs);
    setTimeout(() => this.wake(), pauseMs + 1);
  }

  #fail(batch: BatchRecord, problems: BatchProblem[]): void {
    this.#change(batch, { status: "failed", failedAt: this.options.now(), problems });
  }

  /** Changes what is stored by now, not what was read when the work began. */
  #change(batch: BatchRecord, change: Partial<BatchRecord>, files: readonly FileRecord[] = []): void {
    const { store } = this.options;
    const stored = store.batch(batch.owner, batch.id);
    const { status } = store.change(stored, change, hasEnded({ ...stored, ...change }), files);
    if (status in this.ended) this.ended[status as EndedStatus]++;
  }

  #input(batch: BatchRecord): string {
    const { store, folder } = this.options;
    return folder.at(store.file(batch.owner, batch.inputFileId).path);
  }

  /** Messages name files by their paths, which clients must not see. */
  #publicWords(batch: BatchRecord, message: string): string {
    const { folder } = this.options;
    return message.replaceAll(folder.at(`files/${batch.inputFileId}`), batch.inputFileId)
      .replaceAll(`${folder.at("")}`, "");
  }
}

/** Batches of the same models are answered one after the other. */
function keyOf({ models = [] }: BatchRecord): string {
  return JSON.stringify(models);
}

export function newId(prefix: string): string {
  return `${prefix}${crypto.randomUUID().replaceAll("-", "")}`;
}

function unanswered(ending: NonNullable<BatchRecord["ending"]>): UnansweredLine {
  return ending === "cancel"
    ? new UnansweredLine("batch_cancelled", "The batch was cancelled before this line was answered")
    : new UnansweredLine("batch_expired", "The batch expired before this line was answered");
}

/** Without the advice of a BatchError, which is for a command that has stopped. */
function reasonOf(error: unknown): { what: string; cause?: unknown } {
  if (error instanceof BatchError) return error;
  return { what: error instanceof Error ? error.message : String(error), cause: error };
}

function problem(code: string, message: string): BatchProblem {
  return { code, message, line: null, param: null };
}

function countsOf(progress: BatchProgress, { cachedTokens, reasoningTokens }: Live) {
  const { total, completed, failed, promptTokens, outputTokens } = progress;
  return {
    total,
    completed,
    failed,
    promptTokens,
    cachedTokens: Math.min(cachedTokens + progress.cachedTokens, promptTokens),
    outputTokens,
    reasoningTokens: Math.min(reasoningTokens + progress.reasoningTokens, outputTokens),
  };
}
