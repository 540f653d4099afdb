import { inputChanged, type InputCheck, type InputLimits, parseChecked } from "./check.ts";
import { ioError } from "./errors.ts";
import { readLines } from "./lines.ts";
import type { BatchRequest, LineRefusal } from "./request.ts";
import type { StorageFile } from "./storage.ts";

const MAX_LINES = 1024;
const MAX_BYTES = 16 * 1024 * 1024;

export interface PendingLine {
  readonly index: number;
  readonly request: BatchRequest;
}

export interface LookAheadInput {
  readonly file: StorageFile;
  readonly name: string;
  readonly check: InputCheck;
  readonly limits: InputLimits;
  /** Lines that are answered already. */
  readonly skip: (index: number) => boolean;
  /** Takes the refused lines of a look-ahead; the lines behind them wait for it. */
  readonly refuse: (refusals: { index: number; refusal: LineRefusal }[]) => Promise<void>;
}

/**
 * Hands out the lines still to be answered. A bounded stretch of the file is read ahead and handed out in the order of
 * the prompts, so that requests with a common beginning follow each other and find it in the engine's prefix cache.
 */
export class LookAhead {
  private readonly lines;
  private window: PendingLine[] = []; // last one first
  private filling: Promise<void> | undefined;
  private seen = 0;
  private ended = false;

  constructor(private readonly input: LookAheadInput) {
    this.lines = readLines(input.file, input.limits.maxLineBytes);
  }

  /** undefined when no line is left. */
  async next(): Promise<PendingLine | undefined> {
    while (this.window.length === 0 && !this.ended) {
      this.filling ??= this.fill().finally(() => this.filling = undefined);
      await this.filling;
    }
    return this.window.pop();
  }

  private async fill(): Promise<void> {
    const { check, limits, name, skip, refuse } = this.input;
    const refusals: { index: number; refusal: LineRefusal }[] = [];
    const found: (PendingLine & { key: string })[] = [];
    let bytes = 0;
    while (found.length + refusals.length < MAX_LINES && bytes < MAX_BYTES) {
      const { value: line, done } = await this.lines.next().catch((error) => {
        throw ioError(`read "${name}"`, error);
      });
      if (done) {
        if (this.seen !== check.lineCount) throw inputChanged(name, this.seen + 1);
        this.ended = true;
        break;
      }
      this.seen += 1;
      if (line.index < check.lineCount && skip(line.index)) continue;
      const { request, refusal } = parseChecked(line, check, name, limits);
      if (refusal !== undefined) refusals.push({ index: line.index, refusal });
      else found.push({ index: line.index, request, key: promptKey(request) });
      bytes += line.length;
    }
    if (refusals.length > 0) await refuse(refusals);
    found.sort((a, b) => a.key < b.key ? 1 : a.key > b.key ? -1 : b.index - a.index);
    this.window = found.map(({ index, request }) => ({ index, request }));
  }
}

/** Orders requests as their prompts begin: templates put the tools before the messages. */
function promptKey({ url, body }: BatchRequest): string {
  return [url, body.model, body.tools, body.messages ?? body.prompt ?? body.input]
    .map((part) => JSON.stringify(part) ?? "").join("\n");
}
