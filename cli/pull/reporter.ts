import type { PullEvent } from "../../hub/mod.ts";
import { sizeInWords } from "../shared/sizes.ts";
import { drawLine, err, out } from "../shared/terminal.ts";
import { jsonLine } from "../shared/escape.ts";

const REDRAW_MS = 100;
const JSON_MS = 500;
/** Milliseconds over which the download speed is averaged. */
const WINDOW_MS = 5000;
const BAR = 12;

/** Reports a download: a bar on a terminal, JSON lines for programs, otherwise only notes. */
export class PullReporter {
  readonly #bar: ProgressBar | undefined;
  readonly #json: boolean;
  #next = 0;
  #last = "";

  constructor(json: boolean) {
    this.#json = json;
    this.#bar = !json && Deno.stderr.isTerminal() ? new ProgressBar(drawLine, columns) : undefined;
  }

  event(event: PullEvent): void {
    if (this.#json) this.#line(event);
    else if (event.kind === "note") this.#note(event.message);
    else if (event.kind === "begin") {
      const kept = event.kept > 0 ? `, ${sizeInWords(event.kept)} of them already here` : "";
      this.#note(`${event.source}: ${event.name}, ${sizeInWords(event.bytes)}${kept}`);
    } else if (event.kind === "needs") {
      const { needs: { weights, rest }, free } = event;
      const known = free === undefined ? "" : `; ${sizeInWords(free)} are free here`;
      this.#note(`needs ${sizeInWords(weights + rest)} of memory${known}`);
    } else this.#bar?.update(event.kind === "check" ? "checking" : "downloading", event.done, event.total);
  }

  /** Removes the progress bar. */
  end(): void {
    this.#bar?.clear();
  }

  #note(message: string): void {
    err(`${message}\n`);
  }

  #line(event: PullEvent): void {
    if (event.kind === "download" || event.kind === "check") {
      const now = performance.now();
      if (now < this.#next && event.done < event.total) return;
      this.#next = now + JSON_MS;
      const line = { event: "progress", stage: event.kind, bytes: event.done, total: event.total };
      const text = JSON.stringify(line);
      if (text !== this.#last) out(`${text}\n`);
      this.#last = text;
      return;
    }
    const { kind, ...rest } = event;
    const said = event.kind === "needs"
      ? { memory: event.needs.weights + event.needs.rest, memory_free: event.free, fits: event.fits }
      : rest;
    out(jsonLine({ event: kind, ...said }));
  }
}

/** A progress line that is redrawn in place. Its share never decreases within a stage. */
export class ProgressBar {
  #stage = "";
  #share = 0;
  #samples: { at: number; done: number }[] = [];
  #next = 0;

  constructor(private readonly draw: (line: string) => void, private readonly columns: () => number) {}

  update(stage: string, done: number, total: number, now = performance.now()): void {
    if (stage !== this.#stage) {
      this.#stage = stage;
      this.#share = 0;
      this.#samples = [];
    }
    this.#share = Math.max(this.#share, Math.min(1, total > 0 ? done / total : 0));
    if (now < this.#next && this.#share < 1) return;
    this.#next = now + REDRAW_MS;
    this.#samples.push({ at: now, done });
    while (this.#samples.length > 2 && this.#samples[0].at < now - WINDOW_MS) this.#samples.shift();
    const line = [this.#stage, this.#picture(), this.#percent(), this.#amount(total), ...this.#pace(total)]
      .join("  ");
    this.draw(line.slice(0, this.columns() - 1));
  }

  clear(): void {
    this.draw("");
  }

  #picture(): string {
    const full = Math.floor(BAR * this.#share);
    return `[${"=".repeat(full)}${" ".repeat(BAR - full)}]`;
  }

  #percent(): string {
    return `${Math.floor(100 * this.#share)} %`.padStart(5);
  }

  #amount(total: number): string {
    return `${sizeInWords(this.#share * total)} of ${sizeInWords(total)}`;
  }

  #pace(total: number): string[] {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)!];
    const speed = 1000 * (last.done - first.done) / (last.at - first.at);
    if (!(speed > 0)) return [];
    return [`${sizeInWords(speed)}/s`, `${durationInWords((1 - this.#share) * total / speed)} left`];
  }
}

function durationInWords(seconds: number): string {
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round(seconds % 3600 / 60)} min`;
}

function columns(): number {
  try {
    return Deno.consoleSize().columns;
  } catch {
    return 80;
  }
}
