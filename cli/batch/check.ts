import { jobShape, noteTo, TABLE_FLAGS } from "./table.ts";
import { bodyExaminer } from "../../lib/batch/check_body.ts";
import { ALIAS_HELP, examinerOf } from "./names.ts";
import { RefusalList, refusedEvent } from "./reporter.ts";
import { checkJob, GENERATION_URLS } from "../../lib/batch/jobs.ts";
import { type BatchWorld } from "./world.ts";
import { Flags, UsageError } from "../shared/flags.ts";

const HELP = `Check a batch file without running it: no model is loaded and nothing is written.

Usage: deno task batch check IN.jsonl [options]
       deno task batch check IN.csv --prompt "… {column} …" [options]

  --model FILE     the --model of the run: lines may name no other (default: the one that comes with compy)
${ALIAS_HELP}
  --endpoint URL   all lines must name this endpoint, as a batch of the server wants it
                   (${GENERATION_URLS.join(" or ")}); any model may be named then,
                   unless --model or --alias is given
  --json           one JSON object a line: {"event":"refused","line","custom_id","code","message","param"} for each
                   bad line, then {"event":"checked","lines","bad","bytes"}
  --help           this text
  of a table       the options of batch run that say what is asked: --prompt, --system, --schema, …

Finds what batch run with the same options would refuse. Prints the first 20 bad lines, and with --json all, with their
numbers and the reasons: invalid JSON or UTF-8, no custom_id or one that an earlier line
uses, a method other than POST, an unknown endpoint, "stream":true, nesting that is too deep; and in the body fields that
the endpoint refuses, schemas, grammars and tools that no answer could follow, and another model. Whether the
model's template takes the conversation, and whether that fits the context, is known only when the line runs
(--dry-run of batch run tells that). Of a table: columns that the prompt names and the table has not, rows that are broken, and
rows with nothing to ask.

The file is read as a stream: memory grows by 30 bytes a line, not with the lines' length.
Exit code: 0 all lines are good, 1 some are bad or the file cannot be read, 2 wrong usage.

Example:
  deno task batch check questions.jsonl --endpoint /v1/chat/completions
`;

/** `batch check …`. Returns the exit code. */
export async function checkCommand(args: readonly string[], world: BatchWorld): Promise<number> {
  const { host } = world;
  const flags = new Flags(args, {
    values: ["endpoint", "model", "alias", ...TABLE_FLAGS],
    repeated: ["alias"],
    operands: ["IN"],
  });
  if (flags.help) {
    host.out(HELP);
    return 0;
  }
  const endpoint = flags.text("endpoint");
  if (endpoint !== undefined && !GENERATION_URLS.includes(endpoint)) {
    throw new UsageError(`--endpoint must be ${GENERATION_URLS.join(" or ")} (got "${endpoint}")`);
  }
  const name = flags.operand("IN");
  const { openInput } = await jobShape(flags, name, undefined, noteTo(world, flags));
  const isForServer = endpoint !== undefined && !flags.has("model") && !flags.has("alias");
  const refusals = new RefusalList(name, (text) => host.out(`${text}\n`));
  const { lines, bad, bytes } = await checkJob(name, {
    openInput,
    endpoint,
    examine: isForServer ? bodyExaminer() : examinerOf(flags),
    onRefusal: (refusal) => {
      if (flags.json) host.out(`${JSON.stringify(refusedEvent(refusal))}\n`);
      else refusals.add(refusal);
    },
  });
  refusals.end();
  host.out(
    flags.json
      ? `${JSON.stringify({ event: "checked", lines, bad, bytes })}\n`
      : `${name}: ${lines} lines, ${bad === 0 ? "all good" : `${bad} bad`}\n`,
  );
  return bad === 0 ? 0 : 1;
}
