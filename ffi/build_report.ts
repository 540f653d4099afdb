import type { BuildEvent } from "./cargo.ts";

/** Output for build messages. */
export interface ReportScreen {
  /** Prints a permanent line. */
  note(text: string, isFailure?: boolean): void;
  /** Prints a line that the next one replaces; undefined if there is no terminal. */
  readonly draw: ((text: string) => void) | undefined;
}

const REDRAW_MS = 1000;
/** Milliseconds between progress lines without a terminal. */
const LINE_MS = 15_000;

/** Reports builds: in one updated line on a terminal, else in a line at intervals. */
export class BuildReport {
  #event: BuildEvent | undefined;
  #startedAt = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly screen: ReportScreen) {}

  /** Reports a build event. */
  readonly tell = (event: BuildEvent): void => {
    const { draw, note } = this.screen;
    const { what } = event;
    const before = this.#event;
    this.#event = event;
    if (event.type === "failed") {
      this.stop();
      return note(`Cannot build the ${what}: ${printable(event.reason)}`, true);
    }
    if (event.type === "built") {
      const seconds = this.#seconds();
      this.stop();
      if (before !== undefined) note(`Built the ${what} in ${seconds} s`);
      return;
    }
    if (before === undefined) {
      this.#startedAt = performance.now();
      if (!draw) note(`Building the ${what} (once, and after each change of their sources)`);
      this.#timer = setInterval(() => this.#show(), draw ? REDRAW_MS : LINE_MS);
    }
    if (draw) this.#show();
    else if (event.type === "waiting") note(textOf(event));
  };

  /** Stops reporting the running build. */
  stop(): void {
    clearInterval(this.#timer);
    this.#event = undefined;
    this.screen.draw?.("");
  }

  #seconds(): number {
    return Math.round((performance.now() - this.#startedAt) / 1000);
  }

  #show(): void {
    if (this.#event === undefined) return;
    const text = `${textOf(this.#event)}, ${this.#seconds()} s`;
    if (this.screen.draw) this.screen.draw(text);
    else this.screen.note(text);
  }
}

function textOf(event: BuildEvent): string {
  if (event.type !== "crates") return `Waiting for another build of the ${event.what}`;
  const of = event.total > 0 ? ` of ${event.total}` : "";
  return `Building the ${event.what}: ${event.done}${of} crates`;
}

/** Indents several lines and removes terminal control characters. */
function printable(reason: string): string {
  const clean = reason.replace(/[^\P{Cc}\n]/gu, "");
  return clean.includes("\n") ? `\n${clean.replace(/^/gm, "  ")}` : clean;
}
