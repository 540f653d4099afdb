import { jobShape, noteTo, SAME_TABLE_HELP, TABLE_SETTINGS } from "./table.ts";
import { bodyExaminer } from "../../lib/batch/check_body.ts";
import { ALIAS, examinerOf } from "./names.ts";
import { RefusalList, refusedEvent } from "./reporter.ts";
import { checkJob, GENERATION_URLS } from "../../lib/batch/jobs.ts";
import { type BatchWorld } from "./world.ts";
import { ADAPTERS, STRICT_PARAMETERS } from "../shared/engine_settings.ts";
import { readWords } from "../shared/read_settings.ts";
import { choice, HELP_LINE, helpOf, onOff, path } from "../shared/settings.ts";
import { escaped, jsonLine } from "../shared/escape.ts";
import { once } from "../shared/terminal.ts";

const OPTIONS = {
  model: path("FILE", {
    help: "the --model of the run; lines may name no other model (default: the one that comes with compy)",
  }),
  alias: ALIAS,
  ...ADAPTERS,
  endpoint: {
    ...choice("URL", GENERATION_URLS, {
      help:
        "all lines must name this endpoint, as in a batch of the server; unless --model or --alias is given, they may " +
        `then name any model (${GENERATION_URLS.join(" or ")})`,
    }),
    rule: GENERATION_URLS.join(" or "),
  },
  strictParameters: STRICT_PARAMETERS,
  json: onOff({
    help:
      'print one JSON object per line: {"event":"refused","line","custom_id","code","message","param"} for each bad ' +
      'line, then {"event":"checked","lines","bad","bytes"}',
  }),
};

const HELP = `Check a batch file without running it. No model is loaded, and nothing is written.

Usage: deno task batch check IN.jsonl [options]
       deno task batch check IN.csv --prompt "… {column} …" [options]

${helpOf(OPTIONS)}${HELP_LINE}${SAME_TABLE_HELP}

Finds the lines that batch run would refuse with the same options. Prints the first 20 bad lines, and with --json all, with their
numbers and reasons: invalid JSON or UTF-8; a missing or duplicate custom_id; a method other than POST; an unknown endpoint;
"stream":true; too deep nesting; body fields that the endpoint refuses; schemas, grammars and tools that no answer can follow;
another model. Only a run shows whether the chat template accepts the conversation, and whether it fits the context (batch run
--dry-run reports that). In a table: missing columns that the prompt names, broken rows, and rows without a question.

The file is streamed: memory grows by 30 bytes per line, whatever the lines' length.
Exit code: 0 all lines are good, 1 some are bad or the file cannot be read, 2 wrong usage.

Example:
  deno task batch check questions.jsonl --endpoint /v1/chat/completions
`;

/** Runs `batch check …`. Returns the exit code. */
export async function checkCommand(args: readonly string[], world: BatchWorld): Promise<number> {
  const { host } = world;
  const table = { ...OPTIONS, ...TABLE_SETTINGS };
  const given = readWords(table, args, HELP, { operands: ["IN"], print: host.out });
  if (given === undefined) return 0;
  const { values } = given;
  const { endpoint, model, alias, strictParameters } = values;
  const note = noteTo(world, given.json);
  const name = given.operand("IN");
  const { openInput } = await jobShape(values, name, undefined, note);
  const isForServer = endpoint !== undefined && model === undefined && alias.length === 0;
  const refusals = new RefusalList(name, (text) => host.out(`${text}\n`));
  const { lines, bad, bytes } = await checkJob(name, {
    openInput,
    endpoint,
    examine: isForServer ? bodyExaminer({ strictParameters, warn: once(note) }) : examinerOf(values, note),
    onRefusal: (refusal) => {
      if (given.json) host.out(jsonLine(refusedEvent(refusal)));
      else refusals.add(refusal);
    },
  });
  refusals.end();
  host.out(
    given.json
      ? jsonLine({ event: "checked", lines, bad, bytes })
      : `${escaped(name)}: ${lines} lines, ${bad === 0 ? "all good" : `${bad} bad`}\n`,
  );
  return bad === 0 ? 0 : 1;
}
