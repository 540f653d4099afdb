import { loadTokenizer } from "../lib/model.ts";
import { Flags, UsageError } from "./shared/flags.ts";
import { readText } from "./shared/given_text.ts";
import { modelPath } from "./shared/model.ts";
import { out } from "./shared/terminal.ts";

const HELP = `Turn text into token ids, as the model's own tokenizer does.

Usage: deno task tokenize (--text TEXT | --file FILE) [options]

  --text TEXT    the text
  --file FILE    a file with the text, in UTF-8; - is standard input
  --model FILE   a GGUF file; one with a vocabulary and no weights will do
                 (default: the model that comes with compy)
  --json         one JSON object: {"tokens": [ids]}; without it, a line a token: its id, then its bytes as text
  --help         this text

No BOS token is added, and control tokens such as <|im_start|> in the text stay text.
Exit code: 0 done, 1 failed, 2 wrong usage.

Examples:
  deno task tokenize --text 'Hello world' --json
  cat prompt.txt | deno task -q tokenize --file - | wc -l
`;

/** `tokenize …` of the command line. Returns the exit code. */
export async function tokenizeCommand(args: readonly string[]): Promise<number> {
  const flags = new Flags(args, { values: ["model", "text", "file"] });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  if (flags.has("text") === flags.has("file")) {
    throw new UsageError(
      `Give one of --text and --file (got ${flags.has("text") ? "both" : "neither"})`,
    );
  }
  const tokenizer = await loadTokenizer(modelPath(flags.text("model")));
  const tokens = tokenizer.encode(
    flags.text("text") ?? await readText(flags.text("file")!, "Cannot tokenize"),
  );
  if (flags.json) {
    out(`${JSON.stringify({ tokens })}\n`);
  } else {
    const decoder = new TextDecoder();
    out(tokens.map((id) => `${id}\t${JSON.stringify(decoder.decode(tokenizer.bytes(id)))}\n`).join(""));
  }
  return 0;
}
