export interface KernelReport {
  readonly kind: "kernels";
  readonly isa: string;
  readonly rows: readonly {
    readonly threads: number;
    readonly shape: string;
    readonly format: string;
    readonly weights_in: string;
    readonly m: number;
    readonly share_of_bandwidth: number;
    readonly share_of_peak: number;
  }[];
}

export interface ModelReport {
  readonly kind?: undefined;
  readonly model: string;
  readonly isa: string;
  readonly threads: number;
  readonly rows: readonly {
    readonly work: string;
    readonly sequences: number;
    readonly tokens_per_second: number;
    readonly share_of_limit: number;
    readonly over_paper?: number;
  }[];
}

const WIDTH = 720;
const LEFT = 70;
const RIGHT = 20;
const INK = 'fill="#777"';
/** Colours that are visible on white and on black. */
const [FIRST, SECOND] = ["#3b82c4", "#d9822b"];

/** Returns one SVG with the reports' charts below each other. */
export function draw(reports: readonly (KernelReport | ModelReport)[]): string {
  let [y, body] = [0, ""];
  for (const report of reports) {
    const chart = report.kind === "kernels" ? formatChart(report) : sequenceChart(report);
    body += `<g transform="translate(0 ${y})">\n${chart.body}</g>\n`;
    y += chart.height;
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y}" width="${WIDTH}" height="${y}" ` +
    `font-family="system-ui, sans-serif" font-size="13">\n${body}</svg>\n`;
}

interface Chart {
  readonly height: number;
  readonly body: string;
}

/**
 * Returns a chart with two bars per format: one token, which is bound by reading, and the most tokens, bound by
 * computing. Uses the first shape and thread count.
 */
function formatChart({ rows, isa }: KernelReport): Chart {
  const [{ threads, shape }] = rows;
  const shown = rows.filter((row) =>
    row.threads === threads && row.shape === shape && row.weights_in === "memory"
  );
  const most = Math.max(...shown.map((row) => row.m));
  const formats = [...new Set(shown.map((row) => row.format))];
  const x = (share: number) => LEFT + Math.min(share, 1) * (WIDTH - LEFT - RIGHT - 50);
  const bar = (y: number, share: number, color: string) =>
    rectangle(LEFT, y, x(share) - LEFT, 11, color) +
    label(x(share) + 6, y + 10, `${Math.round(100 * share)} %`);
  const share = (format: string, m: number, name: "share_of_bandwidth" | "share_of_peak") =>
    shown.find((row) => row.format === format && row.m === m)?.[name] ?? 0;
  const top = 62;
  const bars = formats.map((format, i) =>
    label(LEFT - 8, top + i * 34 + 17, format, "end") +
    bar(top + i * 34, share(format, 1, "share_of_bandwidth"), FIRST) +
    bar(top + i * 34 + 13, share(format, most, "share_of_peak"), SECOND)
  );
  const body =
    label(10, 20, `Kernels: share of the machine's limit (${shape}, ${isa}, threads: ${threads})`) +
    rectangle(10, 34, 12, 12, FIRST) + label(28, 45, "1 token: share of the bandwidth") +
    rectangle(270, 34, 12, 12, SECOND) + label(288, 45, `${most} tokens: share of the arithmetic peak`) +
    bars.join("");
  return { height: top + formats.length * 34 + 10, body };
}

/**
 * Returns a chart of decode tokens per second over the number of sequences, with the machine's limit as a dashed line.
 */
function sequenceChart({ rows, model, isa, threads }: ModelReport): Chart {
  const points = rows.filter((row) => row.work === "decode" && row.over_paper === undefined)
    .map((row) => ({
      n: row.sequences,
      rate: row.tokens_per_second,
      limit: row.tokens_per_second / row.share_of_limit,
    }))
    .sort((a, b) => a.n - b.n);
  const [top, bottom] = [70, 290];
  const step = (WIDTH - LEFT - RIGHT - 40) / Math.max(points.length - 1, 1);
  const most = Math.max(...points.map((p) => Math.max(p.limit, p.rate)));
  const x = (i: number) => LEFT + 20 + i * step;
  const y = (rate: number) => bottom - rate / most * (bottom - top);
  const line = (name: "rate" | "limit", color: string, more = "") =>
    `<polyline fill="none" stroke="${color}" stroke-width="2"${more} points="${
      points.map((p, i) => `${x(i).toFixed(1)},${y(p[name]).toFixed(1)}`).join(" ")
    }"/>\n`;
  const marks = points.map((p, i) =>
    `<circle cx="${x(i).toFixed(1)}" cy="${y(p.rate).toFixed(1)}" r="3.5" fill="${FIRST}"/>\n` +
    label(x(i), y(p.rate) + 18, p.rate.toFixed(0), "middle") + label(x(i), bottom + 28, String(p.n), "middle")
  );
  const body =
    label(10, 20, `${model}: decode, tokens/s over sequences side by side (${isa}, threads: ${threads})`) +
    rectangle(10, 34, 12, 12, FIRST) + label(28, 45, "measured") +
    rectangle(270, 34, 12, 12, SECOND) + label(288, 45, "limit of bandwidth and arithmetic (dashed)") +
    `<line x1="${LEFT}" y1="${bottom + 8}" x2="${WIDTH - RIGHT}" y2="${bottom + 8}" stroke="#777"/>\n` +
    label(LEFT - 8, y(most) + 4, most.toFixed(0), "end") + label(LEFT - 8, bottom + 12, "0", "end") +
    line("limit", SECOND, ' stroke-dasharray="6 4"') + line("rate", FIRST) + marks.join("");
  return { height: bottom + 45, body };
}

function rectangle(x: number, y: number, width: number, height: number, color: string): string {
  const [left, wide] = [x, width].map((value) => value.toFixed(1));
  return `<rect x="${left}" y="${y}" width="${wide}" height="${height}" fill="${color}"/>\n`;
}

function label(x: number, y: number, text: string, anchor = "start"): string {
  const safe = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}" ${INK}>${safe}</text>\n`;
}
