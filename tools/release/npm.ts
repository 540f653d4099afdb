/** Builds the npm packages: the main package, and one package with the native libraries per platform. */
import { fromFileUrl, join } from "@std/path";
import { libraryFile, thisPlatform } from "../../ffi/find.ts";
import { DENO_VERSION, NAME, platformPackage, VERSION } from "../../package.ts";
import { bundle } from "./bundle.ts";
import { type DenoJson, installedConfig } from "./commands.ts";
import { writeDeclarations } from "./declarations.ts";
import { nodeLauncher } from "./launchers.ts";
import { LIBRARIES } from "./libraries.ts";
import { run } from "./run.ts";

/** Platforms with native libraries, as Node names them. */
const PLATFORMS = [["linux", "x64"], ["linux", "arm64"], ["darwin", "arm64"], ["darwin", "x64"]];

/**
 * Version of the package koffi, which loads native libraries in Node. Deno does not need it, so it is not in deno.json.
 */
const KOFFI = "3.3.4";

const ABOUT = {
  version: VERSION,
  description:
    "GGUF language models on Deno and Node: an OpenAI-compatible server, durable batches, a library",
  license: "MIT",
  type: "module",
};

/** Files in both the packages and the release folder, as paths from the repository's root. */
const SHIPPED = [
  "LICENSE",
  "README.md",
  "CHANGELOG.md",
  "models/demo.gguf",
  "engine/backend/wasm/compy.wasm",
  "engine/vision/images.wasm",
  "engine/vision/images.licences.md",
];

/** Files of the library's entry point, which reports a Node version that is too old. */
const ENTRY = ["index.js", "node_version.js"];

/** Copies the shipped files other than JavaScript. */
export async function copyShipped(root: string, folder: string): Promise<void> {
  for (const path of [...SHIPPED, ...await pageFiles(root)]) await copy(root, folder, path);
}

/** Returns the files of the web page, without tests. */
async function pageFiles(root: string): Promise<string[]> {
  const entries = await Array.fromAsync(Deno.readDir(join(root, "routes/page")));
  return entries.filter(({ isFile, name }) => isFile && !name.endsWith(".ts"))
    .map(({ name }) => `routes/page/${name}`).sort();
}

async function copy(root: string, folder: string, path: string): Promise<void> {
  const to = join(folder, path);
  await Deno.mkdir(join(to, ".."), { recursive: true });
  await Deno.copyFile(join(root, path), to);
}

/**
 * Writes the main package into a folder that has the bundle and its declarations in `js/`. The declarations import
 * `packages`.
 */
export async function writeMainPackage(
  root: string,
  json: DenoJson,
  packages: Iterable<string>,
  folder: string,
): Promise<void> {
  await copyShipped(root, folder);
  // Package managers that do not hoist install the library package as a link, which the launcher follows.
  const libraries = PLATFORMS.map(([os, cpu]) => `../${platformPackage(os, cpu)}`);
  await Deno.writeTextFile(join(folder, "deno.json"), installedConfig(json, libraries));
  await Deno.writeTextFile(join(folder, "bin.js"), await nodeLauncher(json), { mode: 0o755 });
  for (const name of ENTRY) await copy(fromFileUrl(new URL(".", import.meta.url)), folder, name);
  await writeJson(join(folder, "package.json"), {
    name: NAME,
    ...ABOUT,
    keywords: ["gguf", "llm", "openai", "deno", "inference"],
    bin: { [NAME]: "bin.js" },
    exports: { ".": { types: "./js/mod.d.ts", default: "./index.js" }, "./package.json": "./package.json" },
    files: ["bin.js", ...ENTRY, "deno.json", "js", "engine", "models", "routes", "CHANGELOG.md"],
    engines: { node: ">=22" },
    dependencies: { deno: DENO_VERSION, ...versions(json, packages) },
    optionalDependencies: {
      ...Object.fromEntries(PLATFORMS.map(([os, cpu]) => [platformPackage(os, cpu), VERSION])),
      koffi: KOFFI,
    },
  });
}

/** Returns the packages with their versions from deno.json, without the main package itself. */
function versions({ imports }: DenoJson, packages: Iterable<string>): Record<string, string> {
  return Object.fromEntries(
    [...packages].filter((name) => name !== NAME).map((name) => {
      const version = imports[name]?.match(/^npm:.+@([\d.]+)$/)?.[1];
      if (version === undefined) {
        throw new Error(`The declarations import ${name}, which deno.json must map to a version`);
      }
      return [name, version];
    }),
  );
}

/** Writes the package of this machine's platform, with the libraries in the folder `libraries`. */
async function writePlatformPackage(root: string, libraries: string, folder: string): Promise<void> {
  const { os, cpu } = thisPlatform();
  await copy(root, folder, "LICENSE");
  const files = LIBRARIES.map(({ name }) => libraryFile(name));
  for (const file of files) await copy(libraries, folder, file);
  await Deno.writeTextFile(
    join(folder, "README.md"),
    `The libraries of ${NAME} for ${os} on ${cpu}. They come with \`${NAME}\`.\n`,
  );
  await writeJson(join(folder, "package.json"), {
    name: platformPackage(os, cpu),
    ...ABOUT,
    description: `The native libraries of ${NAME} for ${os} on ${cpu}`,
    os: [os],
    cpu: [cpu],
    files,
    preferUnplugged: true,
  });
}

/**
 * Writes both packages into folders of `dist`, with the libraries of a folder, and packs them. Returns the tarballs'
 * paths and the folder with the JavaScript.
 */
export async function packNpm(
  root: string,
  libraries: string,
  dist: string,
): Promise<{ main: string; platform: string; js: string }> {
  const json: DenoJson = JSON.parse(await Deno.readTextFile(join(root, "deno.json")));
  const [main, platform] = [join(dist, "npm"), join(dist, "npm-platform")];
  const js = join(main, "js");
  await bundle(root, [
    "main.ts",
    "mod.ts",
    "engine/backend/webgpu/weights/pack_worker.ts",
    "engine/vision/image_starter.ts",
    "engine/vision/image_worker.ts",
    "convert/quantize/quantize_worker.ts",
  ], js);
  await writeMainPackage(root, json, await writeDeclarations(root, "mod.ts", js), main);
  await writePlatformPackage(root, libraries, platform);
  return { main: (await pack(main, dist)).path, platform: (await pack(platform, dist)).path, js };
}

/** Packs a package's folder. Returns the tarball's path in `dist`, and the files in the tarball. */
export async function pack(folder: string, dist: string): Promise<{ path: string; files: string[] }> {
  const [{ filename, files }] = JSON.parse(
    await run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", dist], { cwd: folder }),
  );
  return { path: join(dist, filename), files: files.map((file: { path: string }) => file.path) };
}

async function writeJson(path: string, value: unknown): Promise<void> {
  await Deno.writeTextFile(path, JSON.stringify(value, null, 2) + "\n");
}
