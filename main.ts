import { fromFileUrl } from "@std/path";
import { commandLine } from "./cli/command_line.ts";

/** A task starts in this folder, whatever the caller's is: paths on the command line are the caller's. */
function enterCallersFolder(): void {
  const caller = Deno.env.get("INIT_CWD");
  if (caller && Deno.cwd() === fromFileUrl(new URL(".", import.meta.url)).replace(/\/$/, "")) {
    Deno.chdir(caller);
  }
}

enterCallersFolder();
Deno.exit(await commandLine(Deno.args));
