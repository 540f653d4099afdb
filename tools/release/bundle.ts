/** compy's own code and all that it imports, as JavaScript that needs no installing. */
import { join } from "@std/path";
import { run } from "./run.ts";

/** Bundles the entry points (paths from the repository's root) into a folder, one file each and shared chunks beside them. */
export async function bundle(root: string, entries: readonly string[], folder: string): Promise<void> {
  const options = ["--platform", "deno", "--code-splitting", "--outdir", folder];
  await run("deno", ["bundle", "-q", ...options, ...entries], { cwd: root });
  for await (const { name } of Deno.readDir(folder)) {
    if (!name.endsWith(".js")) continue;
    const path = join(folder, name);
    await Deno.writeTextFile(path, installedWords(await Deno.readTextFile(path)));
  }
}

/** Messages and help tell how a command is started; without a checkout there are no tasks. */
export function installedWords(code: string): string {
  return code
    .replace(/\bdeno task (?:-q )?(?!build\b|[\w-]+:)/g, "compy ")
    .replace(/\bdeno run (?:-P=\w+ )?(?!npm:)/g, "compy ")
    .replace(/\bmain\.ts (?=[a-z$-])/g, "");
}
