/** Runs coding agents, each with its own home folder, configured as docs/AGENTS.md says. */

import { assertEquals } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { MADE, type Script, type ScriptedServer, withScriptedModel } from "./scripted_model.ts";

/** An agent's folders and environment. */
export interface Place {
  readonly home: string;
  /** The folder that the agent works in. */
  readonly work: string;
  readonly env: Readonly<Record<string, string>>;
}

/** A PNG file of one pixel, in base64. */
export const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const GUIDE = new URL("../../docs/AGENTS.md", import.meta.url);
/** Maximum milliseconds of an agent. It takes a few seconds, and many times longer on a busy machine. */
const MOST_MS = 240_000;

/** Runs `test` with new folders for an agent and a server of the scripted model. */
export async function withAgent(
  script: (work: string) => Script,
  test: (place: Place, server: ScriptedServer) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "agent-" });
  const [home, work] = ["home", "work"].map((name) => join(folder, name));
  for (const path of [home, work]) await Deno.mkdir(path);
  const env = { HOME: home, PATH: Deno.env.get("PATH") ?? "", NO_COLOR: "1", TERM: "dumb" };
  try {
    await withScriptedModel(script(work), (server) => test({ home, work, env }, server));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Returns the `nth` code block under a heading of the guide, with the server's address and model in it. */
export async function configuration(
  heading: string,
  { port, model }: ScriptedServer,
  nth = 0,
): Promise<string> {
  const guide = await Deno.readTextFile(GUIDE);
  const [section] = guide.split(`\n## ${heading}\n`)[1]?.split("\n## ") ?? [""];
  const [, block] = [...section.matchAll(/^```\w+\n(.*?)^```$/gms)][nth] ?? [];
  if (block === undefined) throw new Error(`${fromFileUrl(GUIDE)} lacks a code block under "${heading}"`);
  return block.replaceAll("127.0.0.1:8080", `127.0.0.1:${port}`).replaceAll("qwen3-4b", model);
}

/** Returns the variables of a shell block: `export NAME=value` in each line. */
export function exported(block: string): Record<string, string> {
  const lines = block.matchAll(/^export (\w+)=(\S*)/gm);
  return Object.fromEntries([...lines].map(([, name, value]) => [name, value]));
}

/**
 * Runs an agent to its end, and then kills the processes that it has left running. Returns its output. Throws if the
 * agent fails.
 */
export async function run(
  command: string,
  args: readonly string[],
  { work, env }: Place,
  settings: Readonly<Record<string, string>>,
): Promise<string> {
  const child = new Deno.Command(command, {
    args: [...args],
    cwd: work,
    env: { ...env, ...settings },
    clearEnv: true,
    detached: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const timer = setTimeout(() => killGroup(child.pid), MOST_MS);
  try {
    const { code, stdout, stderr } = await child.output();
    const text = new TextDecoder();
    const said = text.decode(stdout);
    assertEquals(code, 0, said + text.decode(stderr));
    return said;
  } finally {
    clearTimeout(timer);
    killGroup(child.pid);
  }
}

/** Throws unless the commands of `commandScript` have run. */
export async function checkCommands({ work }: Place): Promise<void> {
  for (const file of MADE) assertEquals(await Deno.readTextFile(join(work, file)), "made\n");
}

function killGroup(pid: number): void {
  try {
    Deno.kill(-pid, "SIGKILL");
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
