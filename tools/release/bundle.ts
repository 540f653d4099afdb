/** Bundles compy's code and its imports as JavaScript that needs no installation. */
import { dirname, join, relative } from "@std/path";
import { installedWords } from "../../package.ts";
import { run } from "./run.ts";

/** Version of esbuild, which translates newer syntax (`await using`) for Node 20 and browsers. */
const ESBUILD = "esbuild@0.28.2";
const TARGET = "es2022";

/**
 * Bundles the entry points (paths from the repository's root) into a folder, one file each and shared chunks beside
 * them.
 */
export async function bundle(root: string, entries: readonly string[], folder: string): Promise<void> {
  const options = ["--platform", "deno", "--code-splitting", "--outdir", folder];
  await run("deno", ["bundle", "-q", ...options, ...entries], { cwd: root });
  const paths = await scripts(folder);
  const lowering = [`--target=${TARGET}`, `--outdir=${folder}`, "--allow-overwrite", "--log-level=warning"];
  await run("npm", ["exec", "--yes", `--package=${ESBUILD}`, "--", "esbuild", ...paths, ...lowering]);
  for (const path of paths) {
    await Deno.writeTextFile(path, installedWords(await Deno.readTextFile(path)));
  }
}

/** Returns the scripts in a folder and its subfolders. */
async function scripts(folder: string): Promise<string[]> {
  const entries = await Array.fromAsync(Deno.readDir(folder));
  const found = entries.map(async ({ name, isDirectory }) => {
    const path = join(folder, name);
    return isDirectory ? await scripts(path) : name.endsWith(".js") ? [path] : [];
  });
  return (await Promise.all(found)).flat();
}

/** Copies a bundle into another folder. */
export async function copyBundle(from: string, to: string): Promise<void> {
  for (const path of await scripts(from)) {
    const copy = join(to, relative(from, path));
    await Deno.mkdir(dirname(copy), { recursive: true });
    await Deno.copyFile(path, copy);
  }
}
