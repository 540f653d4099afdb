/** What compy is called where it is published, and the files that come with it. Nothing here needs Deno. */

/** The main package's name. */
export const NAME = "compy";
/** The library's name on JSR, where names have a scope. */
export const JSR_NAME = `@${NAME}/${NAME}`;
/** The name in deno.json is the same. */
export const VERSION = "0.1.0";

/** Version of Deno that packages contain and start. */
export const DENO_VERSION = "2.9.6";
/** Oldest version of Deno that runs compy. */
export const OLDEST_DENO = "2.9";

/** Whether the program runs from a checkout, where cargo builds the libraries, and not from a bundle. */
export const FROM_SOURCE = import.meta.url.endsWith(".ts");

/**
 * The repository's root, or the folder of the package or release, whose JavaScript is in `js/`; the rest is laid out
 * alike.
 */
const ROOT = new URL(FROM_SOURCE ? "./" : "../", import.meta.url);

/** Returns the URL of a file or folder (ends in "/") that comes with compy, by its path from the repository's root. */
export function shipped(path: string): URL {
  return new URL(path, ROOT);
}

/**
 * Returns the URL of a module that is started and not imported, such as a worker's, by its path from the repository's
 * root.
 */
export function shippedModule(path: string): URL {
  return FROM_SOURCE ? shipped(path) : shipped(`js/${path.replace(/\.ts$/, ".js")}`);
}

/** Returns the name of the package with a platform's libraries. Platforms have Node's names: `linux`, `x64`. */
export function platformPackage(os: string, cpu: string): string {
  return `@${NAME}/${os}-${cpu}`;
}

/** The kernels as WebAssembly: among what is shipped or, of a bundle that a browser fetches, beside it. */
export function wasmModule(): URL {
  return FROM_SOURCE || import.meta.url.startsWith("file:")
    ? shipped("engine/backend/wasm/compy.wasm")
    : new URL("./compy.wasm", import.meta.url);
}

/**
 * Returns the text with commands as an installed or linked compy calls them: `deno task serve` becomes `compy serve`.
 */
export function installedWords(text: string): string {
  return text
    .replace(/\bdeno task (?:-q )?(?!build\b|link\b|[\w-]+:)/g, `${NAME} `)
    .replace(/\bdeno run (?:-P=\w+ )?(?!npm:)/g, `${NAME} `)
    .replace(/\bmain\.ts (?=[a-z$-])/g, "");
}
