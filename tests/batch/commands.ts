import { fromFileUrl } from "@std/path";

const ROOT = fromFileUrl(new URL("../..", import.meta.url));

/** Makes a folder with these lines in `in.jsonl`; `path` returns paths in it. */
export async function inFolder(
  lines: readonly string[],
  test: (path: (name: string) => string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "batch-commands-" });
  await Deno.writeTextFile(`${folder}/in.jsonl`, lines.join("\n"));
  try {
    await test((name) => `${folder}/${name}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Runs `batch …` as a user does. */
export function batch(args: string[]): Deno.ChildProcess {
  const run = ["run", "-q", "-P=batch", "main.ts", "batch", ...args];
  return new Deno.Command(Deno.execPath(), { args: run, cwd: ROOT, stdout: "null", stderr: "piped" }).spawn();
}

/** Returns the lines of an output or error file. */
export async function readLines<Line>(path: string): Promise<Line[]> {
  return (await Deno.readTextFile(path)).trimEnd().split("\n").map((line) => JSON.parse(line));
}
