/** Derives how an installed compy starts its commands from their tasks in deno.json, with the same permissions. */

/** Arguments of Deno for one command. */
export interface Start {
  /** Name of the permission set in deno.json. */
  readonly set: string;
  /** Other flags of Deno, for example --v8-flags. */
  readonly flags: readonly string[];
  /** Variables as `NAME=VALUE`. The user's environment takes precedence. */
  readonly env: readonly string[];
  /**
   * Value of `--allow-write` if the set names folders, so that they are relative to the caller's folder, not the
   * package's.
   */
  readonly write?: string;
}

/** The parts of deno.json that are read here. */
export interface DenoJson {
  readonly version: string;
  readonly imports: Readonly<Record<string, string>>;
  readonly tasks: Readonly<Record<string, string>>;
  readonly permissions: Readonly<Record<string, Readonly<Record<string, boolean | readonly string[]>>>>;
}

/** Command for arguments without one, such as --help. */
export const WITHOUT_COMMAND = "generate";

/**
 * Shell prefix that explains an old Deno: the shell of Deno 2.7 and older has no command `:`, and Deno 2.4 does not
 * know `-P`.
 */
export const OLD_DENO = ": 2>/dev/null || (cat tools/old_deno.txt >&2 && exit 1) && ";

const TASK = /^(?<env>(?:\w+=\S+ )*)deno run -q (?<flags>(?:--\S+ )*)-P=(?<set>\w+) main\.ts (?<name>\w+)$/;

/** Returns the commands of main.ts among the tasks. */
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

/** Returns a permission set for an installed compy, without permissions that only a build in a checkout needs. */
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
 * Returns the deno.json of a package, with the permission sets of the commands. `ffi` has the libraries' paths,
 * relative to that file.
 */
export function installedConfig(json: DenoJson, ffi: readonly string[]): string {
  const sets = new Set(Object.values(commandsOf(json)).map(({ set }) => set));
  const permissions = Object.fromEntries(
    Object.entries(json.permissions).filter(([name]) => sets.has(name))
      .map(([name, set]) => [name, "ffi" in set ? { ...installedSet(set), ffi } : set]),
  );
  return JSON.stringify({ nodeModulesDir: "none", lock: false, permissions }, null, 2) + "\n";
}
