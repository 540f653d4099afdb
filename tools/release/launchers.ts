/** What starts Deno on the bundle: a shell script in a release folder, a script for Node in the npm package. */
import { NAME } from "../../package.ts";
import { commandsOf, type DenoJson, type Start, WITHOUT_COMMAND } from "./commands.ts";

const HERE = new URL("./", import.meta.url);

/** The release folder's `compy`. */
export async function shellLauncher(json: DenoJson): Promise<string> {
  const template = await Deno.readTextFile(new URL("launcher.sh", HERE));
  const starts = commandsOf(json);
  const cases = Object.entries(starts).map(([name, start]) => `  ${name}) ${shellStart(start)} ;;`);
  return replaceOnce(
    template,
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

function replaceOnce(text: string, part: string, by: string): string {
  if (text.split(part).length !== 2) throw new Error(`A launcher must have ${JSON.stringify(part)} once`);
  return text.replace(part, () => by);
}
