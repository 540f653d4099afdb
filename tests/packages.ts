/** Installs programs from registries for tests. Nothing of theirs is kept in the repository. */

import { fromFileUrl, join } from "@std/path";

const CACHE = fromFileUrl(new URL("../.cache", import.meta.url));
const INSTALL_MS = 300_000;

/** Installs `name@version` without running scripts. Returns its folder, or undefined if npm cannot install it. */
export function fromNpm(npm: string): Promise<string | undefined> {
  return installed(join(CACHE, "npm", npm.replaceAll("/", "+")), [
    ["npm", "install", "--prefix", ".", "--no-audit", "--no-fund", "--ignore-scripts", npm],
  ]);
}

/** Installs `name==version`. Returns the folder of a virtual environment, or undefined if pip cannot install it. */
export function fromPypi(requirement: string): Promise<string | undefined> {
  const folder = join(CACHE, "pypi", requirement);
  const pip = join(folder, "bin/pip");
  return installed(folder, [
    ["python3", "-m", "venv", "."],
    [pip, "install", "--quiet", "--disable-pip-version-check", requirement],
  ]);
}

/** Runs the commands in the folder, unless they have succeeded before. Returns undefined if one fails. */
async function installed(folder: string, commands: readonly string[][]): Promise<string | undefined> {
  const done = join(folder, "installed");
  if (await Deno.stat(done).then(() => true, () => false)) return folder;
  await Deno.mkdir(folder, { recursive: true });
  for (const [program, ...args] of commands) {
    const signal = AbortSignal.timeout(INSTALL_MS);
    const command = new Deno.Command(program, { args, cwd: folder, stdout: "null", stderr: "null", signal });
    try {
      if (!(await command.output()).success) return undefined;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return undefined;
      throw error;
    }
  }
  await Deno.writeTextFile(done, "");
  return folder;
}
