/**
 * Loses devices at random moments (`deno task webgpu:losses`): while weights are packed, kernels compiled,
 * prompts and answers computed, answers read back, and engines closed. Every stream must end, nothing may
 * hang, and all memory must be freed.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { Losses } from "../server/losses.ts";

const HELP = `Lose the GPU's device at random moments while streams run.

Usage: deno task webgpu:losses [options]

  --losses N        devices to lose (default 100)
  --seed N          another seed gives other moments (default 1)
  --help            this text

Exit code: 0 done, 1 a stream hung, ended wrongly, or memory was kept, 2 wrong usage.
`;

const say = (text: string) => Deno.stdout.writeSync(new TextEncoder().encode(text));
const args = parseArgs(Deno.args, {
  string: ["losses", "seed"],
  boolean: ["help"],
  default: { losses: "100", seed: "1" },
  unknown: (name: string) => {
    say(`Unknown option ${name}\n\n${HELP}`);
    Deno.exit(2);
  },
});
if (args.help) {
  say(HELP);
  Deno.exit(0);
}
const [wanted, seed] = [Number(args.losses), Number(args.seed)];
if (!Number.isInteger(wanted) || wanted < 1 || !Number.isInteger(seed)) {
  say(`--losses must be at least 1, --seed a whole number (got ${args.losses}, ${args.seed})\n`);
  Deno.exit(2);
}

const losses = await Losses.start(seed, (line) => say(`${line}\n`));
try {
  while (losses.injected < wanted) await losses.round();
} finally {
  await losses.end();
}
say(`${losses.summary()}\n`);
Deno.exit(losses.complaints.length > 0 ? 1 : 0);
