/**
 * Builds a release into dist/ (`deno task release`): the npm packages, the release folder for this platform as a tar,
 * and their checksums. docs/RELEASING.md describes their contents.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { basename, fromFileUrl, join, resolve } from "@std/path";
import { libraryFile } from "../../ffi/find.ts";
import { VERSION } from "../../package.ts";
import { copyBundle } from "./bundle.ts";
import type { DenoJson } from "./commands.ts";
import { folderName, tar, writeReleaseFolder } from "./folder.ts";
import { buildLibraries, LIBRARIES, neededGlibc } from "./libraries.ts";
import { packNpm } from "./npm.ts";

const ROOT = fromFileUrl(new URL("../../", import.meta.url));
const DIST = join(ROOT, "dist");

const HELP = `Build what is published into dist/.

Usage: deno task release [--libraries DIR]

  --libraries DIR  take the native libraries from there instead of building them
  --help           this text
`;

async function release(libraries: string | undefined): Promise<void> {
  const json: DenoJson = JSON.parse(await Deno.readTextFile(join(ROOT, "deno.json")));
  if (json.version !== VERSION) {
    throw new Error(`package.ts must have the version of deno.json, ${json.version} (got ${VERSION})`);
  }
  await Deno.remove(DIST, { recursive: true }).catch(() => {});
  const folders = { libraries: join(DIST, "libraries"), release: join(DIST, folderName()) };
  for (const folder of Object.values(folders)) await Deno.mkdir(folder, { recursive: true });

  if (libraries === undefined) await buildLibraries(ROOT, folders.libraries);
  else await copyLibraries(libraries, folders.libraries);
  if (Deno.build.os === "linux") await checkGlibc(folders.libraries);

  say("Bundling and packing …");
  const packages = await packNpm(ROOT, folders.libraries, DIST);
  await copyBundle(packages.js, join(folders.release, "js"));
  await writeReleaseFolder(ROOT, json, folders.libraries, folders.release);
  await writeSums([packages.main, packages.platform, await tar(folders.release, DIST)]);
}

async function copyLibraries(from: string, to: string): Promise<void> {
  for (const { name } of LIBRARIES) {
    await Deno.copyFile(join(from, libraryFile(name)), join(to, libraryFile(name)));
  }
}

async function checkGlibc(folder: string): Promise<void> {
  for (const { name } of LIBRARIES) {
    const file = libraryFile(name);
    say(`${file} needs glibc ${await neededGlibc(join(folder, file))}`);
  }
}

/** Writes SHA256SUMS in the format of `sha256sum --check`. */
async function writeSums(paths: readonly string[]): Promise<void> {
  const lines = [];
  for (const path of paths) {
    const bytes = await Deno.readFile(path);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
    lines.push(`${digest}  ${basename(path)}\n`);
    say(`${(bytes.length / 1e6).toFixed(1).padStart(6)} MB  ${basename(path)}`);
  }
  await Deno.writeTextFile(join(DIST, "SHA256SUMS"), lines.join(""));
}

function say(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(text + "\n"));
}

if (import.meta.main) {
  const flags = parseArgs(Deno.args, { string: ["libraries"], boolean: ["help"] });
  if (flags.help) Deno.stdout.writeSync(new TextEncoder().encode(HELP));
  else await release(flags.libraries && resolve(Deno.env.get("INIT_CWD") ?? ".", flags.libraries));
}
