/** Runs the campaigns of tests/storms/storms.json, and prints their table (`deno task storms`). */
import { deadline } from "@std/async/deadline.js";
import { campaignLine, say } from "../../testing/campaign.ts";
import type { Figures } from "../storms/storm.ts";
import { type Row, ROWS, SCENARIOS, tableLine } from "../storms/table.ts";

const MINUTES = 30;
/** Milliseconds after which a campaign of the usual count counts as hanging. */
const LIMIT_MS = 20 * 60_000;

function describe(figures: Figures): string {
  const shown = Object.entries(figures).map(([name, value]) => {
    const digits = Number.isInteger(value) || value >= 100 ? value.toFixed(0) : value.toPrecision(3);
    return `${name.replaceAll("_", " ")} ${digits}`;
  });
  return shown.join(", ");
}

type End = "as expected" | "skipped" | "failed";

/** Returns a campaign's result for the table, and how it ended. */
async function run(row: Row, count: number, seed: number): Promise<{ result: string; end: End }> {
  const start = performance.now();
  let figures: Figures | undefined;
  let failure = "";
  try {
    const limit = LIMIT_MS * Math.max(1, count / row.count);
    figures = await deadline(SCENARIOS[row.name]({ count, seed, say: (line) => say(`  ${line}`) }), limit);
    if (figures === undefined) return { result: "skipped", end: "skipped" };
    const over = Object.entries(row.most).filter(([name, most]) => !(figures![name] <= most!));
    failure = over.map(([name, most]) => `${name} above ${most}`).join(", ");
  } catch (error) {
    failure = error instanceof Error ? error.message.split("\n")[0] : String(error);
    say(Deno.inspect(error));
  }
  const seconds = Math.round((performance.now() - start) / 1000);
  const parts = [`${count} ${row.unit}`, describe(figures ?? {}), `${seconds} s`].filter((part) =>
    part !== ""
  );
  const replay = `deno task storms --only ${row.name} --seed ${seed} --count ${count}`;
  return failure === ""
    ? { result: parts.join("; "), end: "as expected" }
    : { result: `FAILED: ${failure}; ${parts.join("; ")}; replay: ${replay}`, end: "failed" };
}

async function main(): Promise<number> {
  const { minutes, seed, only, count } = campaignLine({
    task: "storms",
    does: `Inject every kind of fault, and compare what happens with tests/storms/storms.json.
Prints a table. Exit code 1 if an outcome is not the expected one.`,
    options: {
      minutes: ["about how long all campaigns take on two idle cores", MINUTES],
      seed: ["which faults, and when", 1],
      only: ["names of campaigns, with commas between them", undefined],
      count: ["faults of each campaign, instead of --minutes", 0],
    },
  });
  const names = only?.split(",") ?? ROWS.map(({ name }) => name);
  const unknown = names.find((name) => !Object.hasOwn(SCENARIOS, name));
  if (unknown !== undefined) {
    say(`There is no campaign ${unknown}: ${ROWS.map(({ name }) => name).join(", ")}`);
    return 2;
  }
  const lines: string[] = [];
  const ends: Record<End, number> = { "as expected": 0, skipped: 0, failed: 0 };
  for (const row of ROWS.filter(({ name }) => names.includes(name))) {
    const share = Math.max(row.least ?? 1, Math.round(row.count * minutes / MINUTES));
    say(`${row.name}: ${row.fault}`);
    const { result, end } = await run(row, count || share, seed);
    ends[end]++;
    say(`  ${result}`);
    lines.push(tableLine(row, result));
  }
  say(
    ["", "| campaign | fault | expected outcome | result |", "| --- | --- | --- | --- |", ...lines].join(
      "\n",
    ),
  );
  say(`\nSeed ${seed}: ${Object.entries(ends).map(([end, campaigns]) => `${campaigns} ${end}`).join(", ")}`);
  return ends.failed > 0 ? 1 : 0;
}

if (import.meta.main) Deno.exit(await main());
