import { fromFileUrl } from "@std/path";
import type { Served } from "./calls.ts";

/* Clients that run in separate processes, because they need further permissions or another language. */

export interface ClientProgram {
  /** Names of the clients whose calls the program makes. */
  readonly clients: string;
  readonly command: string;
  readonly args: readonly string[];
  isThere(): boolean;
}

const ROOT = fromFileUrl(new URL("../../..", import.meta.url));
const PYTHON = `${ROOT}.cache/clients/bin/python`;

export const CLIENT_PROGRAMS: readonly ClientProgram[] = [
  ...Object.entries({
    6: "tests/server/clients/vercel_6.ts",
    7: "tests/server/clients/vercel_7.ts",
  }).map(([version, program]) => ({
    clients: `ai ${version} with @ai-sdk/openai, @ai-sdk/openai-compatible and @ai-sdk/anthropic (npm)`,
    command: Deno.execPath(),
    args: ["run", "-q", "--no-check", "--lock=tests/deno.lock", "-P=clients", program],
    isThere: () => true,
  })),
  {
    clients: "openai and litellm (PyPI)",
    command: PYTHON,
    args: ["tools/clients/calls.py"],
    isThere: hasPython,
  },
  {
    clients: "ollama (PyPI)",
    command: PYTHON,
    args: ["tools/clients/ollama_calls.py"],
    isThere: hasPython,
  },
];

/** With COMPY_CLIENTS_REQUIRED a missing program is an error instead of a skipped test. */
function hasPython(): boolean {
  return Deno.env.get("COMPY_CLIENTS_REQUIRED") !== undefined || exists(PYTHON);
}

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

/** Result of a call; `error`: the reason of its failure. */
export interface Outcome {
  readonly call: string;
  readonly error: string | null;
}

/** Runs all calls of a program, which prints one outcome per line as JSON. Throws if the program fails. */
export async function runProgram(
  { command, args }: ClientProgram,
  { base, model }: Served,
): Promise<Outcome[]> {
  const { code, stdout, stderr } = await new Deno.Command(command, {
    args: [...args, base, model],
    cwd: ROOT,
    env: { NO_COLOR: "1" },
    stdin: "null",
  }).output();
  const text = new TextDecoder();
  if (code !== 0) throw new Error(`${command} ended with ${code}: ${text.decode(stderr)}`);
  const lines = text.decode(stdout).split("\n").filter((line) => line.startsWith("{"));
  if (lines.length === 0) throw new Error(`${command} made no calls: ${text.decode(stderr)}`);
  return lines.map((line) => JSON.parse(line));
}
