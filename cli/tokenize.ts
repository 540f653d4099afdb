import { describeModel } from "../lib/model.ts";
import { UsageError } from "./shared/flags.ts";
import { readText } from "./shared/given_text.ts";
import { modelPath } from "./shared/model.ts";
import { readWords } from "./shared/read_settings.ts";
import { HELP_LINE, helpOf, onOff, path, text } from "./shared/settings.ts";
import { out } from "./shared/terminal.ts";
import { jsonLine } from "./shared/escape.ts";

const OPTIONS = {
  text: text("TEXT", { help: "the text" }),
  file: path("FILE", { help: "a UTF-8 file with the text; - is standard input" }),
  model: path("FILE", {
    help: "a GGUF file, with or without weights (default: the model that comes with compy)",
  }),
  json: onOff({
    help:
      'print one JSON object, {"tokens": [ids]}; without it, one line per token: its id and its bytes as text',
  }),
};

const HELP = `Convert text into token ids with the model's tokenizer.

Usage: deno task tokenize (--text TEXT | --file FILE) [options]

${helpOf(OPTIONS)}${HELP_LINE}
No BOS token is added. Control tokens in the text, such as <|im_start|>, stay text.
Exit code: 0 done, 1 failed, 2 wrong usage.

Examples:
  deno task tokenize --text 'Hello world' --json
  cat prompt.txt | deno task -q tokenize --file - | wc -l
`;

/** Runs `tokenize …` of the command line. Returns the exit code. */
export async function tokenizeCommand(args: readonly string[]): Promise<number> {
  const given = readWords(OPTIONS, args, HELP);
  if (given === undefined) return 0;
  const { values: { text, file, model } } = given;
  if ((text === undefined) === (file === undefined)) {
    throw new UsageError(`Give one of --text and --file (got ${text === undefined ? "neither" : "both"})`);
  }
  const { tokenizer } = await describeModel({ model: modelPath(model) });
  const tokens = tokenizer.encode(text ?? await readText(file!, "Cannot tokenize"));
  if (given.json) {
    out(jsonLine({ tokens }));
  } else {
    const decoder = new TextDecoder();
    out(tokens.map((id) => `${id}\t${JSON.stringify(decoder.decode(tokenizer.bytes(id)))}\n`).join(""));
  }
  return 0;
}
