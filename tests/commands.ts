import { assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";

/* The commands as users run them: as tasks of deno.json, with the permissions that those grant, on the demo model. */

export const root = fromFileUrl(new URL("..", import.meta.url));

export interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export function task(args: readonly string[], cwd = root): Deno.ChildProcess {
  // Of several tasks within each other the first sets INIT_CWD.
  const options = { args: ["task", "-q", ...args], cwd, env: { INIT_CWD: cwd, NO_COLOR: "1" } };
  return new Deno.Command(Deno.execPath(), { ...options, stdin: "null", stdout: "piped", stderr: "piped" })
    .spawn();
}

export async function run(args: readonly string[], cwd?: string): Promise<Result> {
  const { code, stdout, stderr } = await task(args, cwd).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

// So that no command has to, and says so.
assertEquals((await run(["build"])).code, 0);

/** Runs a command that must succeed and print one JSON object. */
export async function runJson(...args: string[]) {
  const { code, stdout, stderr } = await run([...args, "--json"]);
  assertEquals(code, 0, stderr);
  return JSON.parse(stdout);
}

export async function withFolder(test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
