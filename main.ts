import { fromFileUrl } from "@std/path";
import { COMMANDS } from "./cli/commands.ts";
import { escaped } from "./cli/shared/escape.ts";
import { LINKED, obstacle } from "./cli/shared/start.ts";
import { FROM_SOURCE, shipped } from "./package.ts";

/** A task starts in this folder, whatever the caller's is: paths on the command line are the caller's. */
function enterCallersFolder(): void {
  if (!FROM_SOURCE || !granted({ name: "env", variable: "INIT_CWD" })) return;
  const caller = Deno.env.get("INIT_CWD");
  if (caller && Deno.cwd() === fromFileUrl(shipped("./")).replace(/\/$/, "")) {
    Deno.chdir(caller);
  }
}

/** Returns whether a permission is granted. Without this check, Deno would prompt on a terminal, or throw. */
function granted(permission: Deno.PermissionDescriptor): boolean {
  return Deno.permissions.querySync(permission).state === "granted";
}

const words = Deno.args[0] === LINKED ? Deno.args.slice(1) : Deno.args;
const problem = obstacle(words, {
  deno: Deno.version.deno,
  mayRead: !FROM_SOURCE || granted({ name: "read" }),
  isCommand: (word) => Object.hasOwn(COMMANDS, word),
});
if (problem !== undefined) {
  Deno.stderr.writeSync(new TextEncoder().encode(`Error: ${escaped(problem)}\n`));
  Deno.exit(1);
}
enterCallersFolder();
// Imported only now, because an old Deno fails at imports of the commands.
const { commandLine } = await import("./cli/command_line.ts");
Deno.exit(await commandLine(words));
