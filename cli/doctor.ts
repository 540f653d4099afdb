import { fromFileUrl } from "@std/path";
import { diagnose, type Diagnosis, type Wanted } from "../doctor/doctor.ts";
import { shipped } from "../package.ts";
import { modelsFolder, pulledModel } from "./shared/models_folder.ts";
import { SERVE_SETTINGS, type ServeSettings } from "./serve/serve_settings.ts";
import { CONFIG_FLAGS, readSettings, settingsFlags } from "./shared/read_settings.ts";
import { HELP_LINE } from "./shared/settings.ts";
import { asCalled } from "./shared/start.ts";
import { out } from "./shared/terminal.ts";
import { asFlags } from "./shared/words.ts";
import { jsonLine } from "./shared/escape.ts";

const HELP =
  `Report what this machine and installation can do, what is slow or wrong, and what to do about it.

Usage: deno task doctor [options]

It takes the options, environment variables and config file of serve (deno task serve --help) and checks what a server with
them would find. It loads and serves nothing, but creates the data folder if it is missing.
  --json             print one JSON object: {"ok", "checks": [{"check", "status", "found", "advice", "figures"}, …]}
${HELP_LINE}
Each check is ok, slow (it runs, with less speed or memory than possible) or wrong (it cannot run as asked).
Measuring takes about a second, on all cores.
Exit code: 0 nothing is wrong, 1 something is wrong, 2 wrong usage.

Examples:
  deno task doctor
  deno task doctor --model ~/models/qwen3-4b-q4_0.gguf --ctx 32768 --parallel 8
  deno task doctor --config /etc/compy.json --json
`;

/** Width of the column of check names. */
const NAME_COLUMNS = 17;
const INDENT = `\n${" ".repeat(6 + NAME_COLUMNS)}`;

/** Runs `doctor …` of the command line. Returns the exit code. */
export async function doctorCommand(args: readonly string[]): Promise<number> {
  const flags = settingsFlags(SERVE_SETTINGS, args, CONFIG_FLAGS);
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const settings = readSettings(SERVE_SETTINGS, flags, (name) => Deno.env.get(name));
  const checks: Diagnosis[] = [];
  for await (const diagnosis of diagnose(wantedBy(settings))) {
    checks.push(diagnosis);
    if (!flags.json) out(asText(diagnosis));
  }
  const ok = checks.every(({ status }) => status !== "wrong");
  out(flags.json ? jsonLine({ ok, checks }) : summary(checks));
  return ok ? 0 : 1;
}

function wantedBy({ values, sources }: ServeSettings): Wanted {
  const { model, models, host, port, unix, data, backend, threads, ctx, parallel, kvMb, kvType } = values;
  const { apiKey, apiKeys } = values;
  const named = model.length > 0 || models !== undefined;
  return {
    // If no model is named, the demo model and all pulled models are checked.
    models: named
      ? model.map((name) => pulledModel(name) ?? name)
      : [fromFileUrl(shipped("models/demo.gguf"))],
    folder: named ? models : modelsFolder(),
    host,
    port,
    unix,
    hasKeys: apiKey !== undefined || apiKeys !== undefined,
    data: data === "none" ? undefined : data,
    backend,
    threads,
    contextLength: ctx,
    parallel: sources.parallel === "default" ? undefined : parallel,
    kvBytes: kvMb === undefined ? undefined : kvMb * 1e6,
    kvType,
    words: asFlags,
  };
}

function asText({ check, status, found, advice }: Diagnosis): string {
  const lines = [found, ...(advice === undefined ? [] : [`-> ${asCalled(advice)}`])];
  return `${status.padEnd(6)}${check.padEnd(NAME_COLUMNS)}${lines.join("\n").replaceAll("\n", INDENT)}\n`;
}

function summary(checks: readonly Diagnosis[]): string {
  const count = (wanted: string) => checks.filter(({ status }) => status === wanted).length;
  const [slow, wrong] = [count("slow"), count("wrong")];
  if (wrong > 0) {
    return `\n${wrong} of ${checks.length} checks found something wrong: compy cannot run with these settings\n`;
  }
  return slow > 0
    ? `\ncompy can run; ${slow} of ${checks.length} checks found something slow\n`
    : "\ncompy can run\n";
}
