import {
  DEFAULT_CONNECTIONS,
  DEFAULT_ENDPOINT,
  MAX_CONNECTIONS,
  offer,
  pull,
  type PulledModel,
  PullError,
  type PullOptions,
} from "../../hub/mod.ts";
import { UsageError } from "../shared/flags.ts";
import { readWords } from "../shared/read_settings.ts";
import { count, HELP_LINE, helpOf, onOff, text } from "../shared/settings.ts";
import { MODELS, NAME_LIST } from "./verbs.ts";
import { modelList } from "../shared/model_list.ts";
import { modelsFolder, shownFolder } from "../shared/models_folder.ts";
import { askWhich, offerAsJson, offerAsText } from "./offer.ts";
import { PullReporter } from "./reporter.ts";
import { listVerb, namesVerb, rmVerb } from "./verbs.ts";
import { explained } from "../../lib/system_errors.ts";
import { asCalled, quoted } from "../shared/start.ts";
import { onInterrupt, out } from "../shared/terminal.ts";
import { escaped, jsonLine } from "../shared/escape.ts";

const OPTIONS = {
  dryRun: onOff({
    help: "show the choices, their sizes and which of them fit this machine; download nothing",
  }),
  models: MODELS,
  as: text("NAME", { help: "the model's name on this machine (default: its file's name)" }),
  sha256: text("HEX", { help: "the expected SHA-256 of the file, if the hub does not give it" }),
  mirror: text("URL", { help: `another hub than ${DEFAULT_ENDPOINT} (or set HF_ENDPOINT)` }),
  list: NAME_LIST,
  connections: count({
    min: 1,
    max: MAX_CONNECTIONS,
    help: `number of parallel connections (default: ${DEFAULT_CONNECTIONS})`,
  }),
  anyway: onOff({ help: "also pull a model that does not fit this machine, or that compy cannot run" }),
  json: onOff({ help: 'print JSON lines, each with "event": begin, needs, progress, note, done or error' }),
};

const HELP =
  `Download a model, resume the download after any stop, check it, and add it to the folder of models.

Usage: deno task pull SOURCE [options]
       deno task pull list | names | rm NAME

SOURCE is one of
  hf:OWNER/REPO            a repository of a hub; on a terminal you choose one of its models
  hf:OWNER/REPO:Q4_K_M     one of them, by quantization or by file path; @REVISION may follow REPO
  https://…/FILE.gguf      a file; for a model in several files, any of them
  NAME                     a name from the list of models: "deno task pull names"

Options
${helpOf(OPTIONS)}${HELP_LINE}
HF_TOKEN is sent to the hub only. The memory that the model needs is read from its header before the rest is downloaded.
After Ctrl-C, a crash or a lost connection the same command resumes. A full disk is reported before the download begins.
Another folder than .compy needs permission: deno run -P=pull --allow-write=DIR main.ts pull SOURCE --models DIR

Verbs
  list               the models of the folder, and unfinished downloads (--json, --models)
  names              the list of models (--json, --list)
  rm NAME            remove a model that was pulled, or an unfinished download (--models)

Exit code: 0 done, 1 failed or stopped, 2 wrong usage.

Examples:
  deno task pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0
  deno task generate --model Qwen3-0.6B-Q8_0 --chat 'Hello'
  deno task serve --models .compy/models
`;

const VERBS: Readonly<Record<string, (args: readonly string[]) => Promise<number>>> = {
  list: listVerb,
  names: namesVerb,
  rm: rmVerb,
};

/** Runs `pull …` of the command line. Returns the exit code. */
export async function pullCommand(args: readonly string[]): Promise<number> {
  const [first, ...rest] = args;
  if (first !== undefined && Object.hasOwn(VERBS, first) && !rest.includes("--help")) {
    return await VERBS[first](rest);
  }
  const given = readWords(OPTIONS, args, HELP, { operands: ["SOURCE"] });
  if (given === undefined) return 0;
  const { values } = given;
  const { as, sha256, anyway, connections } = values;
  const folder = modelsFolder(values.models);
  const stop = new AbortController();
  onInterrupt(() =>
    stop.abort(
      new PullError("PULL_STOPPED", "Stopped; the downloaded bytes are kept, and the same command resumes"),
    )
  );
  const reporter = new PullReporter(given.json);
  const options: PullOptions = {
    source: given.operand("SOURCE"),
    models: folder,
    endpoint: values.mirror ?? environment("HF_ENDPOINT"),
    token: environment("HF_TOKEN"),
    list: await modelList(values.list),
    as,
    sha256,
    anyway,
    connections,
    choose: !given.json && Deno.stdin.isTerminal() ? (offer) => askWhich(offer, stop.signal) : undefined,
    signal: stop.signal,
    onEvent: (event) => reporter.event(event),
  };
  try {
    if (values.dryRun) {
      const offered = await offer(options);
      out(given.json ? jsonLine(offerAsJson(offered)) : offerAsText(offered));
      return 0;
    }
    report(await pull(options), folder, reporter, given.json);
    return 0;
  } catch (error) {
    reporter.end();
    return fail(error, folder, given.json);
  }
}

function report(model: PulledModel, folder: string, reporter: PullReporter, json: boolean): void {
  reporter.end();
  const { name, path, bytes, receipt, already, fetched } = model;
  const parts = receipt.files.flatMap(({ parts }) => parts);
  if (json) {
    const files = receipt.files.map(({ name, size, parts }) => ({
      name,
      bytes: size,
      sha256: parts.map((p) => p.sha256),
    }));
    out(jsonLine({ event: "done", name, path, bytes, already, fetched, source: receipt.source, files }));
    return;
  }
  const checked = parts.every(({ promised }) => promised)
    ? "SHA-256 as promised"
    : `the hub gives no SHA-256; the file has ${parts.map(({ sha256 }) => sha256).join(", ")}`;
  out(
    already
      ? `${name} is there already: ${escaped(shownFolder(path))}\n`
      : `${name}: ${(bytes / 1e6).toFixed(1)} MB in ${escaped(shownFolder(folder))}; ${checked}\n` +
        asCalled(`Try it: deno task generate --model ${quoted(name)} --chat 'Hello'\n`),
  );
}

/** Returns exit code 2 for an error in the request, and throws other errors. */
function fail(error: unknown, folder: string, json: boolean): number {
  const usage = error instanceof PullError && (error.code === "PULL_SOURCE" || error.code === "PULL_CHOICE");
  const told = usage ? new UsageError(error.message) : withAdvice(error, folder);
  if (json && told instanceof Error) {
    const code = error instanceof PullError ? error.code : "PULL_FAILED";
    out(jsonLine({ event: "error", code, message: told.message }));
  }
  throw told;
}

/** Returns the error with advice, if the task may not write to the folder. */
function withAdvice(error: unknown, folder: string): unknown {
  if (!(error instanceof Deno.errors.NotCapable)) {
    return explained(`Cannot pull into "${shownFolder(folder)}"`, error);
  }
  return new Error(
    `Cannot pull into "${folder}": this task may write to .compy only. Leave out --models, or allow it: ` +
      `deno run -P=pull --allow-write=${quoted(folder)} main.ts pull …`,
  );
}

function environment(name: string): string | undefined {
  return Deno.env.get(name) || undefined;
}
