/**
 * Puts `compy` on the PATH (`deno task link`): a launcher that starts this checkout's commands with their tasks'
 * permissions.
 */
import { dirname, fromFileUrl, join } from "@std/path";
import { NAME } from "../package.ts";
import type { DenoJson } from "./release/commands.ts";
import { linkedLauncher } from "./release/launchers.ts";

const ROOT = dirname(dirname(fromFileUrl(import.meta.url)));
/** Text that marks a launcher of this task. Other files of the same name are never overwritten. */
const OURS = "# Written by `deno task link`.";

/**
 * Writes the launcher into a folder, which is created if missing. Returns its path. Throws if another file has its
 * name.
 */
export async function link(folder: string, root: string, deno: string): Promise<string> {
  const path = join(folder, NAME);
  if (!await isFree(path)) throw new Error(`${path} is another program: remove it first`);
  const json: DenoJson = JSON.parse(await Deno.readTextFile(join(root, "deno.json")));
  await Deno.mkdir(folder, { recursive: true });
  await Deno.writeTextFile(path, await linkedLauncher(json, root, deno), { mode: 0o755 });
  return path;
}

async function isFree(path: string): Promise<boolean> {
  try {
    return (await Deno.lstat(path)).isFile && (await Deno.readTextFile(path)).includes(OURS);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return true;
    throw error;
  }
}

async function main(): Promise<number> {
  const home = Deno.env.get("HOME");
  if (Deno.build.os === "windows" || !home) {
    say(Deno.stderr, "Error: deno task link needs a home folder (HOME) on Linux or macOS");
    return 1;
  }
  const folder = join(home, ".local/bin");
  try {
    const path = await link(folder, ROOT, Deno.execPath());
    say(Deno.stdout, `${path} starts compy from any folder. To undo it, remove that file.`);
  } catch (error) {
    say(Deno.stderr, `Error: ${(error as Error).message}`);
    return 1;
  }
  if (Deno.env.get("PATH")?.split(":").includes(folder)) return 0;
  const line = 'export PATH="$HOME/.local/bin:$PATH"';
  say(Deno.stdout, `${folder} is not on the PATH yet. Add this line to ~/.profile:\n  ${line}`);
  return 0;
}

function say(where: typeof Deno.stdout | typeof Deno.stderr, text: string): void {
  where.writeSync(new TextEncoder().encode(`${text}\n`));
}

if (import.meta.main) Deno.exit(await main());
