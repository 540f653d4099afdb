/**
 * Launchers that start Deno with the bundle: a shell script in the release folder, a Node script in the npm package.
 */
import { NAME, OLDEST_DENO } from "../../package.ts";
import { commandsOf, type DenoJson, type Start, WITHOUT_COMMAND } from "./commands.ts";

const HERE = new URL("./", import.meta.url);

/** Shell code that finds Deno and the program beside the release folder's launcher. */
const BESIDE = `here=$(dirname -- "$(readlink -f -- "$0")")
deno=$here/deno
main=$here/js/main.js
mark=`;

/** Returns the `compy` script of the release folder. */
export async function shellLauncher(json: DenoJson): Promise<string> {
  return await launcher(commandsOf(json), BESIDE);
}

/**
 * Returns the `compy` script of a checkout, for a folder on the PATH. The script starts `deno`, or the PATH's Deno if
 * that file is gone.
 */
export async function linkedLauncher(json: DenoJson, root: string, deno: string): Promise<string> {
  const template = await Deno.readTextFile(new URL("linked.sh", HERE));
  const [major, minor] = OLDEST_DENO.split(".").map(Number);
  const places = Object.entries({
    "@ROOT@": shellWord(root),
    "@DENO@": shellWord(deno),
    "@OLDEST@": `${1000 * major + minor}`,
    "@NEEDED@": OLDEST_DENO,
  }).reduce((text, [name, value]) => replaceOnce(text, name, value), template);
  // Folders in a permission set are relative to the checkout instead of the caller's folder.
  const starts = Object.entries(commandsOf(json)).map((
    [name, start],
  ) => [name, { ...start, write: undefined }]);
  return await launcher(Object.fromEntries(starts), places);
}

async function launcher(starts: Readonly<Record<string, Start>>, places: string): Promise<string> {
  const template = await Deno.readTextFile(new URL("launcher.sh", HERE));
  const cases = Object.entries(starts).map(([name, start]) => `  ${name}) ${shellStart(start)} ;;`);
  return replaceOnce(
    replaceOnce(template, "# PLACES", places),
    "# COMMANDS",
    [...cases, `  *) ${shellStart(starts[WITHOUT_COMMAND])} ;;`].join("\n"),
  );
}

function shellStart({ set, flags, env, write = "" }: Start): string {
  const defaults = env.map((pair) => pair.split("=", 2)).map(([name, value]) =>
    `export ${name}="\${${name}:-${value}}"; `
  );
  return `${defaults.join("")}start ${
    [set, `'${write}'`, ...flags.map((flag) => `'${flag}'`), '"$@"'].join(" ")
  }`;
}

/** Returns the npm package's `bin` script. */
export async function nodeLauncher(json: DenoJson): Promise<string> {
  const template = await Deno.readTextFile(new URL("bin.js", HERE));
  const starts = commandsOf(json);
  const commands = { ...starts, "": starts[WITHOUT_COMMAND] };
  const table = Object.fromEntries(
    Object.entries(commands).map((
      [name, start],
    ) => [name, { ...start, ffi: "ffi" in json.permissions[start.set] }]),
  );
  const filled = replaceOnce(
    template,
    "const COMMANDS = {};",
    `const COMMANDS = ${JSON.stringify(table, null, 2)};`,
  );
  return replaceOnce(filled, "PLATFORM_SCOPE", `@${NAME}`);
}

function shellWord(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

function replaceOnce(text: string, part: string, by: string): string {
  if (text.split(part).length !== 2) throw new Error(`A launcher must have ${JSON.stringify(part)} once`);
  return text.replace(part, () => by);
}
