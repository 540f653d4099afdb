/**
 * Builds the native libraries that are missing or older than their sources (`deno task build`). Tasks that need every
 * instruction set run this first. If nothing is to be built, it only compares file times and prints nothing.
 * `--serving` builds for this machine only, `--events` writes JSON lines for the process that started it, and operands
 * name the crates.
 */
import { BuildReport } from "../ffi/build_report.ts";
import { isBuilt } from "../ffi/built.ts";
import { type BuildEvent, buildLibrary, NO_CARGO } from "../ffi/cargo.ts";
import { GRAMMARS, KERNELS } from "../ffi/names.ts";

function write(stream: { writeSync(bytes: Uint8Array): number }, text: string): void {
  stream.writeSync(new TextEncoder().encode(text));
}

const report = new BuildReport({
  note: (text) => write(Deno.stderr, `${text}\n`),
  draw: Deno.stderr.isTerminal() ? (text) => write(Deno.stderr, `\r\x1b[K${text}`) : undefined,
});

const WITHOUT =
  "Without native libraries compy computes in WebAssembly, at half the speed, and cannot enforce schemas and grammars.";

/**
 * Builds one library after the other, because cargo uses all cores for each. Without cargo it builds nothing and
 * succeeds, because the kernels exist in WebAssembly too. Returns the exit code.
 */
async function buildAll(args: readonly string[]): Promise<number> {
  const profile = args.includes("--serving") ? "serving" : "release";
  const writesEvents = args.includes("--events");
  const crates = args.filter((arg) => !arg.startsWith("--"));
  let failure = "";
  const tell = (event: BuildEvent) => {
    if (event.type === "failed") failure = event.reason;
    if (writesEvents) write(Deno.stdout, `${JSON.stringify(event)}\n`);
    else report.tell(event);
  };
  let code = 0;
  for (const library of [KERNELS, GRAMMARS]) {
    if (crates.length > 0 && !crates.includes(library.crate)) continue;
    if (isBuilt(library, profile === "release" ? ["release"] : undefined)) {
      if (writesEvents) tell({ what: library.what, type: "built" }); // another process has built it meanwhile
      continue;
    }
    if (await buildLibrary(library, { profile, tell })) continue;
    code = 1;
    if (failure === NO_CARGO || !writesEvents) break; // a server can use one library without the other
  }
  if (failure === NO_CARGO && !writesEvents) {
    write(Deno.stderr, `${WITHOUT}\n`);
    return 0;
  }
  return code;
}

if (import.meta.main) Deno.exit(await buildAll(Deno.args));
