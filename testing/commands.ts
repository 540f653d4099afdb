import { assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";

/* Runs commands as tasks of deno.json, with the tasks' permissions, on the demo model. */

export const root = fromFileUrl(new URL("..", import.meta.url));

export interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export function task(
  args: readonly string[],
  cwd = root,
  stdin: "null" | "piped" = "null",
): Deno.ChildProcess {
  // The outermost of nested tasks sets INIT_CWD.
  const options = { args: ["task", "-q", ...args], cwd, env: { INIT_CWD: cwd, NO_COLOR: "1" } };
  return new Deno.Command(Deno.execPath(), { ...options, stdin, stdout: "piped", stderr: "piped" })
    .spawn();
}

export async function run(args: readonly string[], cwd?: string): Promise<Result> {
  return await resultOf(task(args, cwd));
}

async function resultOf(child: Deno.ChildProcess): Promise<Result> {
  const { code, stdout, stderr } = await child.output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

// The build runs now, so that no command has to build and report it.
assertEquals((await run(["build"])).code, 0);

/** Runs a command with a text on its standard input. */
export async function runWith(input: string, args: readonly string[]): Promise<Result> {
  const child = task(args, root, "piped");
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(input));
  await writer.close();
  return await resultOf(child);
}

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

/** Whether the program `script` is installed, which runs a command on a pseudoterminal. */
export const hasScript = await new Deno.Command("script", { args: ["--version"] }).output()
  .then(({ success }) => success, () => false);
