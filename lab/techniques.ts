/** Measures each technique on and off, in one run (`deno task bench:techniques`). */
import { command, KERNEL_BENCH, loadAverage, Options, print, run, say } from "../bench/shell.ts";
import { asTable } from "../bench/table.ts";

const HELP =
  `Measure what each technique gains: the kernel as it is, beside what it would be without, in turn in one run.

Usage: deno task bench:techniques [options]

  --only LIST   of T1, T3, T5, T6, T7, T8, T9, F16, tile, prefix, kv (default: all)
  --threads N   threads of T8; the others run on one (default: one a core)
  --isa NAME    instruction set (default: the best that this CPU has)
  --rounds N    samples of each (default 31)
  --json        one JSON object: {"kind", "isa", "threads", "rounds", "load_before", "load_after",
                "rows": [{"id", "what", "threads", "on", "off", "on_us", "off_us", "gain", "gain_low", "gain_high"}, …]}
  --help        this text

A round times both, and who comes first changes from round to round. The gain is the time without over the time with:
above 1 the technique helps. It is the median over the rounds; low and high hold the middle half of them. Before a pair
counts, both must have computed the same product. One thread is timed by its own clock, so that other programs hardly
count. The variants without a technique belong to this program, not to the library.
Exit code: 0 done, 1 failed, 2 wrong usage.
`;

interface Row {
  readonly id: string;
  readonly what: string;
  readonly on: string;
  readonly off: string;
  readonly gain: number;
  readonly gain_low: number;
  readonly gain_high: number;
}

await command("bench:techniques", HELP, async () => {
  const options = new Options(Deno.args, ["only", "threads", "isa", "rounds"]);
  const only = options.text("only");
  const settings = {
    threads: String(options.count("threads", 1024, navigator.hardwareConcurrency)),
    isa: options.text("isa") ?? "",
    rounds: String(options.count("rounds", 10_000, 31)),
    ...only && { only },
  };
  const before = loadAverage();
  say("Measuring: a minute or two …");
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  const measured = JSON.parse(await run(KERNEL_BENCH, ["techniques", ...args]));
  const report = { ...measured, load_before: before, load_after: loadAverage() };
  if (options.json) return print(`${JSON.stringify(report)}\n`);
  const rows = (measured.rows as Row[]).map((row) => [
    `${row.id.padEnd(7)}${row.what}: ${row.on} / ${row.off}`,
    row.gain.toFixed(2),
    `${row.gain_low.toFixed(2)}-${row.gain_high.toFixed(2)}`,
  ]);
  const load = `load ${before.toFixed(1)} before, ${report.load_after.toFixed(1)} after`;
  print(`${measured.isa}; ${load}\n\n${asTable([["with / without", "gain", "middle half"], ...rows])}`);
});
