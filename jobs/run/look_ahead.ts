import { inputChanged, type InputCheck, type InputLimits, parseChecked } from "../check.ts";
import { ioError } from "../errors.ts";
import { handOutOrder, type OrderedLine } from "./hand_out.ts";
import type { JobInput } from "../input.ts";
import type { BatchRequest, RefusedLine } from "../request.ts";

const MAX_LINES = 1024;
const MAX_BYTES = 16 * 1024 * 1024;

export interface PendingLine extends OrderedLine {
  readonly request: BatchRequest;
}

export interface LookAheadInput {
  readonly from: JobInput;
  readonly name: string;
  readonly check: InputCheck;
  readonly limits: InputLimits;
  /** Number of lines to answer, from the first. */
  readonly end: number;
  /** Returns whether a line already has an answer. */
  readonly skip: (index: number) => boolean;
  /** Stores the refused lines of a window. Later lines wait for it. */
  readonly refuse: (lines: (RefusedLine & { readonly index: number })[]) => Promise<void>;
}

/**
 * Returns the unanswered lines one by one. It reads a bounded window of the file ahead and orders it, so that lines
 * share prefixes and fill steps.
 */
export class LookAhead {
  private readonly lines;
  private window: PendingLine[] = []; // last line first
  private previous: PendingLine | undefined;
  private filling: Promise<void> | undefined;
  private seen = 0;
  private ended = false;

  constructor(private readonly input: LookAheadInput) {
    this.lines = input.from.lines(input.limits.maxLineBytes);
  }

  /** Returns the next line, or undefined when none is left. Throws BatchError. */
  async next(): Promise<PendingLine | undefined> {
    while (this.window.length === 0 && !this.ended) {
      this.filling ??= this.fill().finally(() => this.filling = undefined);
      await this.filling;
    }
    return this.window.pop();
  }

  private async fill(): Promise<void> {
    const { check, limits, end, name, skip, refuse } = this.input;
    const refused: (RefusedLine & { readonly index: number })[] = [];
    const found: PendingLine[] = [];
    let bytes = 0;
    while (found.length + refused.length < MAX_LINES && bytes < MAX_BYTES) {
      if (this.seen === end && end < check.lineCount) {
        this.ended = true;
        break;
      }
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
      const { index } = line;
      const parsed = await parseChecked(line, check, name, limits);
      const { request } = parsed;
      if (request === undefined) refused.push({ index, ...parsed });
      else found.push({ index, request, key: promptKey(request), answer: answerLimit(request) });
      bytes += line.length;
    }
    if (refused.length > 0) await refuse(refused);
    this.window = this.ordered(found).reverse();
    this.previous = this.window[0] ?? this.previous;
  }

  /** Orders the lines by model, the previous line's model first: loading a model costs as much as many lines. */
  private ordered(lines: readonly PendingLine[]): PendingLine[] {
    const last = this.previous && modelOf(this.previous.request);
    const byModel = Map.groupBy(lines, ({ request }) => modelOf(request));
    const names = [...byModel.keys()].sort((a, b) => Number(b === last) - Number(a === last)); // the sort is stable
    return names.flatMap((name) => {
      return handOutOrder(byModel.get(name)!, this.previous?.key ?? "", this.ended && name === names.at(-1));
    });
  }
}

/** Returns the model that a line names, or "" when it names none. */
export function modelOf({ body }: BatchRequest): string {
  return typeof body.model === "string" ? body.model : "";
}

/** Returns a key that orders requests by the start of their prompts: chat templates put tools before messages. */
function promptKey({ url, body }: BatchRequest): string {
  const before = body.instructions ?? body.system;
  return [url, body.model, body.tools, before, body.messages ?? body.prompt ?? body.input]
    .map((part) => JSON.stringify(part) ?? "").join("\n");
}

/**
 * Assumed maximum answer length when a request gives none: the whole context, or OpenAI's default for /v1/completions.
 */
const UNBOUNDED = 1e9;
const COMPLETION_DEFAULT = 16;

/**
 * Returns the maximum tokens of the answer. The body is untrusted and not yet validated, so its types are checked here.
 */
function answerLimit({ url, body }: BatchRequest): number {
  const asked = body.max_completion_tokens ?? body.max_tokens ?? body.max_output_tokens ?? body.n_predict;
  if (typeof asked === "number" && asked >= 0) return asked;
  return url === "/v1/completions" ? COMPLETION_DEFAULT : UNBOUNDED;
}
