import { assertRejects } from "@std/assert";
import { chatCommand } from "./chat/chat.ts";
import { UsageError } from "./shared/flags.ts";
import { generateCommand } from "./generate.ts";

const REFUSED = [
  [
    generateCommand,
    ["one", "two"],
    'Found "two", which belongs to no option; put TEXT in quotes where it has several words',
  ],
  [generateCommand, ["--tokens", "1", "--file", "a"], "Give one of --tokens and --file"],
  [
    generateCommand,
    ["--prompt", "a", "b"],
    "Give one of TEXT, --prompt, --chat and --tokens (got --prompt and TEXT)",
  ],
  [
    chatCommand,
    ["--lines", "hello"],
    "--lines reads its messages from standard input: leave out TEXT and --file",
  ],
] as const;

Deno.test("usage: refuses contradictory sources of a text before reading anything", async () => {
  for (const [command, args, message] of REFUSED) {
    await assertRejects(() => command(args), UsageError, message);
  }
});
