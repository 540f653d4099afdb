/** How the commands are started once compy is installed: as their tasks in deno.json start them, with the same permissions. */

/** What Deno is given for a command. */
export interface Start {
  /** The set of permissions in deno.json. */
  readonly set: string;
  /** Deno's further flags, such as --v8-flags. */
  readonly flags: readonly string[];
  /** `NAME=VALUE`, which a user's own environment goes before. */
  readonly env: readonly string[];
  /** What `--allow-write` is where the set names folders: they are the caller's, and not the package's. */
  readonly write?: string;
}

/** The parts of deno.json that are read here. */
export interface DenoJson {
  readonly version: string;
  readonly imports: Readonly<Record<string, string>>;
  readonly tasks: Readonly<Record<string, string>>;
  readonly permissions: Readonly<Record<string, Readonly<Record<string, boolean | readonly string[]>>>>;
}

/** Words without a command, such as --help, are started like this one. */
export const WITHOUT_COMMAND = "generate";

/** The shell of Deno 2.7 and older has no command `:`. Deno 2.4 and older do not know `-P` either. */
export const OLD_DENO = ": 2>/dev/null || (cat tools/old_deno.txt >&2 && exit 1) && ";

const TASK = /^(?<env>(?:\w+=\S+ )*)deno run -q (?<flags>(?:--\S+ )*)-P=(?<set>\w+) main\.ts (?<name>\w+)$/;

/** The commands of main.ts among the tasks. */
export function commandsOf({ tasks, permissions }: DenoJson): Record<string, Start> {
  const starts = Object.values(tasks).flatMap((task) => {
    const { name, set, flags, env } = TASK.exec(task.replace(OLD_DENO, ""))?.groups ?? {};
    if (name === undefined) return [];
    const { write } = installedSet(permissions[set]);
    return [[name, {
      set,
      flags: words(flags),
      env: words(env),
      ...Array.isArray(write) && { write: write.join(",") },
    }]] as const;
  });
  return Object.fromEntries(starts);
}

function words(text: string): string[] {
  return text.split(" ").filter((word) => word !== "");
}

type PermissionSet = DenoJson["permissions"][string];

/** A set of permissions where compy is installed: without those that only a build in a checkout needs. */
function installedSet(set: PermissionSet): PermissionSet {
  return Object.fromEntries(
    Object.entries(set).flatMap(([name, allowed]): [string, boolean | readonly string[]][] => {
      if (!Array.isArray(allowed)) return [[name, allowed]];
      const left = allowed.filter((what) => what !== "cargo" && !what.startsWith("rust-"));
      return left.length > 0 ? [[name, left]] : [];
    }),
  );
}

/**
 * The deno.json of a package: the sets of permissions that the commands are started with. Libraries are in `ffi`, paths from that
 * file.
 */
export function installedConfig(json: DenoJson, ffi: readonly string[]): string {
  const sets = new Set(Object.values(commandsOf(json)).map(({ set }) => set));
  const permissions = Object.fromEntries(
    Object.entries(json.permissions).filter(([name]) => sets.has(name))
      .map(([name, set]) => [name, "ffi" in set ? { ...installedSet(set), ffi } : set]),
  );
  return JSON.stringify({ nodeModulesDir: "none", lock: false, permissions }, null, 2) + "\n";
}
