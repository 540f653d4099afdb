import type { ProgressView } from "../../lib/batch/jobs.ts";

const BAR_CELLS = 24;

/**
 * Returns one line for a terminal of `columns` columns. A narrow terminal drops the least important parts
 * first.
 */
export function renderBar(view: ProgressView, columns: number): string {
  const share = view.total === 0 ? 1 : view.done / view.total;
  const full = Math.floor(share * BAR_CELLS);
  const parts = [
    `${view.done}/${view.total}`,
    `${view.failed} failed`,
    `${rate(view.promptRate)} tok/s in${cached(view)}`,
    `${rate(view.outputRate)} tok/s out`,
    view.remaining === undefined ? "ETA -" : `ETA ${duration(view.remaining)}`,
  ];
  const withBar = `[${"#".repeat(full)}${"-".repeat(BAR_CELLS - full)}] ${parts.join("  ")}`;
  for (const line of [withBar, parts.join("  "), [parts[0], parts[1], parts[4]].join("  ")]) {
    if (line.length < columns) return line;
  }
  return parts[0].slice(0, Math.max(0, columns - 1));
}

/** Returns the progress as a sentence for a log. */
export function renderLine(view: ProgressView): string {
  const done = `${view.done} of ${view.total} lines, ${view.failed} failed; ` +
    `${rate(view.promptRate)} prompt${cached(view)} and ${rate(view.outputRate)} output tokens/s`;
  if (view.done === view.total) return done;
  return `${done}; ${
    view.remaining === undefined ? "time left unknown" : `about ${duration(view.remaining)} left`
  }`;
}

/** Returns seconds as `12 s`, `3 min 5 s`, `2 h 10 min` or `3 d 4 h`: an estimate is not more precise. */
export function duration(seconds: number): string {
  const s = Math.ceil(seconds);
  if (s < 60) return `${s} s`;
  if (s < 600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  const min = Math.round(s / 60);
  if (min < 60) return `${min} min`;
  const h = Math.floor(min / 60);
  return h < 48 ? `${h} h ${min % 60} min` : `${Math.floor(h / 24)} d ${h % 24} h`;
}

function cached({ cachedShare }: ProgressView): string {
  const percent = Math.round(100 * Math.min(1, cachedShare));
  return percent > 0 ? ` (${percent} % cached)` : "";
}

function rate(value: number): string {
  return value > 0 && value < 10 ? value.toFixed(1) : String(Math.round(value));
}
