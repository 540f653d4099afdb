/** Draws a picture of benchmark reports (`deno task bench:picture`). */
import { resolve } from "@std/path";
import { draw, type KernelReport, type ModelReport } from "./charts.ts";
import { command, print, UsageError } from "../bench/shell.ts";

const HELP = `Draw reports of \`deno task bench --json\` and \`deno task bench:kernels --json\` as one SVG.

Usage: deno task bench:picture REPORT.json … > picture.svg

A kernels' report becomes bars: for each format, one token's share of the bandwidth from memory and the most tokens' share
of the arithmetic peak. A model's report becomes tokens per second over the number of sequences decoded side by side,
with the limit dashed. The picture is legible on light and dark ground.
Exit code: 0 done, 1 failed, 2 wrong usage.
`;

await command("bench:picture", HELP, async () => {
  if (Deno.args.length === 0) throw new UsageError("A report is missing");
  const reports: (KernelReport | ModelReport)[] = [];
  for (const arg of Deno.args) {
    // A task starts in the repository's folder, but the path is relative to the caller's folder.
    const path = resolve(Deno.env.get("INIT_CWD") ?? ".", arg);
    const report = JSON.parse(await Deno.readTextFile(path));
    if (!Array.isArray(report?.rows) || !report.limits) {
      throw new Error(`Cannot draw ${path}: it is not a report`);
    }
    reports.push(report);
  }
  print(draw(reports));
});
