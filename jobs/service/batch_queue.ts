import { checkInput, type InputCheck } from "../check.ts";
import { BatchError } from "../errors.ts";
import { openJsonLines } from "../input.ts";
import { ProgressMeter, type ProgressView } from "../progress.ts";
import { identityDifference, type ModelIdentity } from "../model_identity.ts";
import { modelOf } from "../run/look_ahead.ts";
import type { BatchRequest, LineRefusal } from "../request.ts";
import { journalPath, runBatch } from "../run/runner.ts";
import { countUnanswered } from "./line_answers.ts";
import {
  countsOf,
  CountWriter,
  keyOf,
  type Live,
  newId,
  problem,
  publicWords,
  reasonOf,
  unanswered,
} from "./live_batch.ts";
import type { QueueOptions } from "./queue_options.ts";
import {
  type BatchProblem,
  type BatchRecord,
  type EndedStatus,
  type FileRecord,
  hasEnded,
} from "../types.ts";

/** Maximum number of bad lines that a failed batch lists; further ones are only counted. */
const MAX_PROBLEMS = 1000;
/** Maximum number of model names that a batch keeps, and maximum characters of a name. */
const MAX_MODELS = 64;
const MAX_NAME = 256;

/**
 * Works through the batches of a store. One lane checks input files and ends cancelled batches, which need no model.
 * The other lanes answer lines: one batch at a time per set of models, oldest first.
 */
export class BatchQueue {
  readonly #live = new Map<string, Live>();
  /** Batches whose models are available and unchanged since the batch began. */
  readonly #resumable = new Set<string>();
  /** The reason that was reported to the operator for each waiting batch. */
  readonly #told = new Map<string, string>();
  /** End of each batch's pause, on the `performance.now()` clock in milliseconds. */
  readonly #paused = new Map<string, number>();
  /** Number of batches that have ended in this process, by status. */
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

  /** Finds the batches that can be answered. Reports each waiting batch once. */
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

  /** Returns whether another batch with the same models is running, so that this one has to wait. */
  #isAnswered(key: string): boolean {
    return this.#live.values().some((live) => live.isAnswering && live.key === key);
  }

  /** Starts the queue's work. Call it when there is new work. */
  wake(): void {
    this.#wake.resolve();
    this.#wake = Promise.withResolvers<void>();
  }

  /** Ends a batch: its unanswered lines get no answer. The store must already record the ending. */
  end(id: string, ending: NonNullable<BatchRecord["ending"]>): void {
    this.#paused.delete(id);
    const live = this.#live.get(id);
    if (live !== undefined) {
      live.ending = ending;
      live.abort.abort(unanswered(ending));
    }
    this.wake();
  }

  /** Returns the progress of a running batch, or undefined when the batch is not running. */
  view(id: string): ProgressView | undefined {
    return this.#live.get(id)?.meter.view();
  }

  /** Takes no new lines. Resolves when the lines in progress have ended; the rest resumes at the next start. */
  async stop(): Promise<void> {
    this.#drain.abort();
    this.wake();
    await this.#lanes;
  }

  /** Returns how the model differs from the one that the batch began with; undefined when equal or when not begun. */
  async #difference(batch: BatchRecord): Promise<string | undefined> {
    if (batch.settings === null) return undefined;
    try {
      return identityDifference(batch.settings, await this.#identity(batch.models));
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  /**
   * Returns the given models that exist. Lines for other models are errors, so a model that later gets such a name does
   * not count as a change.
   */
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
    if (batch.ending !== null) live.abort.abort(unanswered(batch.ending));
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
      if (signal.aborted) return; // handled as a stop or a cancellation
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
    // A batch that was cancelled or expired before it began needs no model.
    const settings = batch.settings ?? (live.ending === null ? await this.#identity(batch.models) : {});
    const job = folder.job(batch.id);
    await Deno.mkdir(folder.at(job.folder), { recursive: true, mode: 0o700 });
    await storage.syncFolderOf(folder.at(job.folder));
    const output = folder.at(job.output);
    const errors = folder.at(job.errors);
    const counts = new CountWriter((counts) => store.setCounts(batch.id, counts));
    const result = await runBatch({
      input: this.#input(batch),
      output,
      errors,
      storage,
      // Ended batches only write journal records, so many lines can be in progress.
      parallel: this.options.parallel,
      limits: { ...limits, endpoint: batch.endpoint },
      drainSignal: this.#drain.signal,
      cancelSignal: live.abort.signal,
      owner: batch.owner,
      judge: async (answer) => {
        await this.#checkModels(batch);
        return answer;
      },
      connect: () =>
        Promise.resolve({
          settings,
          processor: live.ending === null ? processor?.() : undefined,
          execute: this.options.execute,
        }),
      onEvent: (event) => {
        if (event.type === "finishing") {
          counts.flush();
          const status = live.ending === "cancel" ? "cancelling" : "finalizing";
          this.#change(batch, { status, finalizingAt: now() });
        } else if (event.type === "other_processor") {
          const message = `Batch ${batch.id} was begun on ${event.before} and resumes on ${event.now}`;
          report(
            new Error(`${message}, which rounds differently: texts may differ from those of one machine`),
          );
        } else if (event.type !== "refused") {
          live.meter.update(event.progress);
          counts.set(countsOf(event.progress, live));
        }
      },
    }).finally(() => counts.flush());
    if (result.state === "stopped") return;
    await this.#finish(batch);
    // The journal is removed, because the database now records how the job ended.
    await folder.remove(journalPath(job.output)).catch(() => {});
  }

  /** Throws when a model was unloaded and reloaded from a changed file: its answers do not belong to this batch. */
  async #checkModels({ settings, models }: BatchRecord): Promise<void> {
    if (settings === null || typeof this.options.settings !== "function") return;
    // The file may be missing while the model is still loaded.
    const now = await this.#identity(models).catch(() => settings);
    const difference = identityDifference(settings, now);
    if (difference === undefined) return;
    throw new BatchError(
      "engine_unavailable",
      `The model that the batch began with has changed: ${difference}`,
      true,
    );
  }

  /** Registers the job's outputs as API files and records how the batch ended, in one transaction. */
  async #finish(batch: BatchRecord): Promise<void> {
    const { folder, storage, store, now } = this.options;
    const job = folder.job(batch.id);
    const output = await this.#outputFile(batch, job.output, "output");
    const error = await this.#outputFile(batch, job.errors, "error");
    const { ending } = store.batch(batch.owner, batch.id);
    const unanswered = ending === null ? 0 : await countUnanswered(storage, folder.at(job.errors));
    const at = now();
    this.#change(
      batch,
      {
        outputFileId: output?.id ?? null,
        errorFileId: error?.id ?? null,
        unanswered,
        ...(ending === "cancel"
          ? { status: "cancelled", cancelledAt: at }
          : ending === "expire"
          ? { status: "expired", expiredAt: at }
          : { status: "completed", completedAt: at }),
      },
      [output, error].filter((file) => file !== undefined),
    );
  }

  /** Returns the record of an output file, or undefined when the file is missing or empty. */
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
        this.#fail(batch, [problem(error.code, publicWords(this.options.folder, batch, error.message))]);
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

  /** Applies a change to the batch as stored now, which may differ from when the work began. */
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
}
