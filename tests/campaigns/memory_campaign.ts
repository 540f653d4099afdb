import { parseArgs } from "@std/cli/parse_args.js";
import { KV_TYPES } from "../../engine/mod.ts";
import { measureMemory, MemoryUse } from "../server/memory_scenario.ts";

const HELP = `Fill a model's context, and compare the memory that it takes with its file.

Usage: deno task memory FILE [options]

  --tokens N      tokens of each prompt or text (default 4000; never more than the model's context)
  --sequences N   of them at once (default 1)
  --kv-type T     f16 (default), q8_0 or q4_0

Exit code: 0 where the model takes at most 1.1 x file + KV cache and states in use + 64 MB, else 1. What the process itself takes
is not counted: it is measured before anything is loaded, and shown.
`;

function describe({ tokens, file, kv, kvOfAll, states, resident, taken, allowed }: MemoryUse): string {
  const mb = (bytes: number) => `${(bytes / 1e6).toFixed(0)} MB`;
  return [
    `file ${mb(file)}; KV cache in use ${mb(kv)} with prompts of ${tokens} tokens (${
      mb(kvOfAll)
    } if every layer kept them all)`,
    `resident ${mb(resident.before)} before loading, ${mb(resident.loaded)} loaded, ${
      mb(resident.most)
    } at most`,
    `the model took ${mb(taken)}, allowed ${mb(allowed)} (1.1 x file + KV cache + ${
      mb(states)
    } of states + 64 MB)`,
  ].join("\n");
}

async function main(): Promise<number> {
  const say = (text: string) => void Deno.stdout.writeSync(new TextEncoder().encode(`${text}\n`));
  const args = parseArgs(Deno.args, { string: ["tokens", "sequences", "kv-type"], boolean: ["help"] });
  const [model] = args._.map(String);
  const kvType = KV_TYPES.find((type) => type === (args["kv-type"] ?? "f16"));
  if (args.help || !model || !kvType) {
    say(HELP);
    return args.help ? 0 : 2;
  }
  const [tokens, sequences] = [Number(args.tokens ?? 4000), Number(args.sequences ?? 1)];
  const use = await measureMemory({ model, tokens, sequences, kvType });
  say(describe(use));
  return use.taken <= use.allowed ? 0 : 1;
}

if (import.meta.main) Deno.exit(await main());
