import { fromFileUrl } from "@std/path";
import { commandLine } from "./cli/command_line.ts";
import { FROM_SOURCE, shipped } from "./package.ts";

/** A task starts in this folder, whatever the caller's is: paths on the command line are the caller's. */
function enterCallersFolder(): void {
  if (!FROM_SOURCE) return;
  const caller = Deno.env.get("INIT_CWD");
  if (caller && Deno.cwd() === fromFileUrl(shipped("./")).replace(/\/$/, "")) {
    Deno.chdir(caller);
  }
}

enterCallersFolder();
Deno.exit(await commandLine(Deno.args));
