/** Builds the native libraries of a checkout, beside a server or before a long computation. */
import { fromFileUrl } from "@std/path";
import {
  awaitLibrary,
  type BuildEvent,
  buildLibrary,
  BuildReport,
  GRAMMARS,
  isBuilt,
  KERNELS,
  type LibraryName,
  linesOf,
  namedLibrary,
} from "../../lib/libraries.ts";
import type { BackendName } from "../../lib/model.ts";
import { FROM_SOURCE, shipped } from "../../package.ts";
import { drawLine, logs, note, onInterrupt } from "./terminal.ts";

/**
 * Shell script that runs the build in its own process group. It ends when this process closes its input or dies.
 * Otherwise cargo would leave its compilers running.
 */
const GROUP = `exec 3<&0
{ read -r _; kill -TERM "-$$"; } <&3 >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-`;

/**
 * Returns the libraries to build for a command with this backend. Only a checkout that uses its own libraries
 * builds any.
 */
function librariesToBuild(backend: BackendName | undefined): LibraryName[] {
  if (!FROM_SOURCE || namedLibrary() !== undefined) return [];
  const needsKernels = backend !== "wasm" && backend !== "webgpu";
  return (needsKernels ? [KERNELS, GRAMMARS] : [GRAMMARS]).filter((library) => !isBuilt(library));
}

function terminalReport(): BuildReport {
  const draws = Deno.stderr.isTerminal() && logs("info");
  return new BuildReport({
    note: (text, isFailure) => note(text, isFailure ? "warning" : "info"),
    draw: draws ? drawLine : undefined,
  });
}

/**
 * Builds the missing libraries, then gives up the permission to run programs, because models and lines come
 * from strangers. Reports a failed build and does not throw. Throws if interrupted.
 */
export async function buildFirst(
  backend: BackendName | undefined,
  libraries: readonly LibraryName[] = [KERNELS, GRAMMARS],
): Promise<void> {
  const stop = new AbortController();
  const release = onInterrupt(() => stop.abort(new Error("Stopped before the native libraries were built")));
  const report = terminalReport();
  try {
    for (const library of librariesToBuild(backend)) {
      if (!libraries.includes(library)) continue;
      const how = { profile: "serving", tell: report.tell, signal: stop.signal } as const;
      if (!await buildLibrary(library, how)) break;
    }
  } finally {
    report.stop();
    release();
    await Deno.permissions.revoke({ name: "run" });
  }
}

/** A build in its own process, beside a server. */
export class BackgroundBuild {
  readonly #child: Deno.ChildProcess;
  readonly #report = terminalReport();
  readonly #results = new Map<LibraryName, PromiseWithResolvers<boolean>>();
  #isStopped = false;
  #hasEnded = false;

  /** Starts the build. It needs the permission to run programs, which the caller may give up afterwards. */
  constructor(libraries: readonly LibraryName[], command: readonly string[] = buildCommand(libraries)) {
    for (const library of libraries) this.#results.set(library, Promise.withResolvers());
    this.#child = new Deno.Command("sh", {
      args: ["-c", GROUP, "sh", ...command],
      env: { LD_LIBRARY_PATH: "" },
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
      detached: true,
    }).spawn();
    this.#follow();
  }

  /** Whether stop() ended the build before it finished. */
  get isStopped(): boolean {
    return this.#isStopped;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Resolves to whether the library was built; undefined if this build does not include it. */
  result(library: LibraryName): Promise<boolean> | undefined {
    return this.#results.get(library)?.promise;
  }

  /** Ends the build and all its child processes. */
  stop(): void {
    if (this.#hasEnded) return;
    this.#isStopped = true;
    this.#end();
  }

  /** Ends the shell. The shell then ends all other processes of its group. */
  #end(): void {
    this.#hasEnded = true;
    this.#report.stop();
    this.#child.stdin.close().catch(() => {});
  }

  async #follow(): Promise<void> {
    for await (const line of linesOf(this.#child.stdout)) this.#take(JSON.parse(line));
    await this.#child.status;
    this.#end();
    for (const { resolve } of this.#results.values()) resolve(false);
  }

  #take(event: BuildEvent): void {
    if (this.#hasEnded) return;
    this.#report.tell(event);
    if (event.type !== "built" && event.type !== "failed") return;
    for (const [{ what }, { resolve }] of this.#results) {
      if (what === event.what) resolve(event.type === "built");
    }
  }
}

function buildCommand(libraries: readonly LibraryName[]): string[] {
  const path = (name: string) => fromFileUrl(shipped(name));
  return [
    Deno.execPath(),
    "run",
    "-q",
    "-P=build",
    "--config",
    path("deno.json"),
    path("tools/build.ts"),
    "--serving",
    "--events",
    ...libraries.map(({ crate }) => crate),
  ];
}

/** Starts to build the libraries that a server will need. Returns undefined if none is missing. */
export function startBuild(backend: BackendName | undefined): BackgroundBuild | undefined {
  const libraries = librariesToBuild(backend);
  if (libraries.length === 0) return undefined;
  const build = new BackgroundBuild(libraries);
  const grammar = build.result(GRAMMARS);
  if (grammar) {
    awaitLibrary(GRAMMARS, async () => {
      if (!build.hasEnded) {
        note("A request with a schema or grammar waits until the grammar library is built");
      }
      if (!await grammar && build.isStopped) throw new Error("The build of the grammar library was stopped");
    });
  }
  return build;
}
