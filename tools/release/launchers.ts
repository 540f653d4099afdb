/** What starts Deno on the bundle: a shell script in a release folder, a script for Node in the npm package. */
import { NAME, OLDEST_DENO } from "../../package.ts";
import { commandsOf, type DenoJson, type Start, WITHOUT_COMMAND } from "./commands.ts";

const HERE = new URL("./", import.meta.url);

/** Where the release folder's launcher finds Deno and the program. */
const BESIDE = `here=$(dirname -- "$(readlink -f -- "$0")")
deno=$here/deno
main=$here/js/main.js
mark=`;

/** The release folder's `compy`. */
export async function shellLauncher(json: DenoJson): Promise<string> {
  return await launcher(commandsOf(json), BESIDE);
}

/** The `compy` of a checkout, for a folder on the PATH. `deno` started it; where that file is gone, the PATH's takes its place. */
export async function linkedLauncher(json: DenoJson, root: string, deno: string): Promise<string> {
  const template = await Deno.readTextFile(new URL("linked.sh", HERE));
  const [major, minor] = OLDEST_DENO.split(".").map(Number);
  const places = Object.entries({
    "@ROOT@": shellWord(root),
    "@DENO@": shellWord(deno),
    "@OLDEST@": `${1000 * major + minor}`,
    "@NEEDED@": OLDEST_DENO,
  }).reduce((text, [name, value]) => replaceOnce(text, name, value), template);
  // The folders that a set names are the checkout's, and not the caller's.
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

/** The npm package's `bin`. */
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
