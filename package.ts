/** What compy is called where it is published, and the files that come with it. Nothing here needs Deno. */

/** The main package's name. */
export const NAME = "compy";
/** The same as in deno.json. */
export const VERSION = "0.1.0";

/** Where compy stands: the repository's root, or the folder of the bundled program; packages keep the repository's layout. */
const ROOT = new URL("./", import.meta.url);

/** Whether this is a checkout, where cargo builds the libraries, and not a bundle. */
export const FROM_SOURCE = import.meta.url.endsWith(".ts");

/** A file or folder (ends in "/") that comes with compy, by its path from the repository's root. */
export function shipped(path: string): URL {
  return new URL(path, ROOT);
}

/** The package that holds the libraries for a platform, in Node's words: `linux`, `x64`. */
export function platformPackage(os: string, cpu: string): string {
  return `@${NAME}/${os}-${cpu}`;
}
