import { fromFileUrl } from "@std/path";
import { diagnose, type Diagnosis, type Wanted } from "../doctor/doctor.ts";
import { shipped } from "../package.ts";
import { modelsFolder, pulledModel } from "./shared/models_folder.ts";
import { SERVE_SETTINGS, type ServeSettings } from "./serve/serve_settings.ts";
import { readSettings, settingsFlags } from "./shared/settings.ts";
import { asCalled } from "./shared/start.ts";
import { out } from "./shared/terminal.ts";
import { asFlags } from "./shared/words.ts";

const HELP = `Say what this machine and installation can do, what is slow or wrong, and what to do about it.

Usage: deno task doctor [options]

Takes the options of serve, its environment variables and its config file, and looks at what a server with these would
meet: deno task serve --help lists them. Nothing is loaded and nothing is served; the data folder is made where it is missing.
  --json         one JSON object: {"ok", "checks": [{"check", "status", "found", "advice", "figures"}, …]}
  --help         this text

Each check is ok, slow (it runs, with less speed or room than there could be) or wrong (what is asked for cannot run).
Measuring takes about a second, and all cores for that time.
Exit code: 0 nothing is wrong, 1 something is, 2 wrong usage.

Examples:
  deno task doctor
  deno task doctor --model ~/models/qwen3-4b-q4_0.gguf --ctx 32768 --parallel 8
  deno task doctor --config /etc/compy.json --json
`;

/** Of the column with the checks' names. */
const NAME_COLUMNS = 17;
const INDENT = `\n${" ".repeat(6 + NAME_COLUMNS)}`;

/** `doctor …` of the command line. Returns the exit code. */
export async function doctorCommand(args: readonly string[]): Promise<number> {
  const flags = settingsFlags(SERVE_SETTINGS, args);
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
  out(flags.json ? `${JSON.stringify({ ok, checks })}\n` : summary(checks));
  return ok ? 0 : 1;
}

function wantedBy({ values, sources }: ServeSettings): Wanted {
  const { model, models, host, port, unix, data, backend, threads, ctx, parallel, kvMb, kvType } = values;
  const { apiKey, apiKeys } = values;
  const named = model.length > 0 || models !== undefined;
  return {
    // Where none is named, there is the demo model, and whatever was pulled.
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
    return `\n${wrong} of ${checks.length} checks found something wrong: compy cannot run as asked\n`;
  }
  return slow > 0
    ? `\ncompy can run; ${slow} of ${checks.length} checks found something slow\n`
    : "\ncompy can run\n";
}
