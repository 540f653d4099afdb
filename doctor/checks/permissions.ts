import { dirname, resolve } from "@std/path";
import type { Finding, Wanted, World } from "../types.ts";

interface Need {
  readonly permission: Deno.PermissionDescriptor;
  readonly flag: string;
  /** Consequence of a missing permission. */
  readonly loss: string;
  readonly status: "slow" | "wrong";
}

/** Checks Deno's permissions. A task has those in deno.json; an installed command has flags. */
export function checkPermissions(world: Pick<World, "permitted">, wanted: Wanted): Finding {
  const missing = needs(wanted).filter(({ permission }) => !world.permitted(permission));
  if (missing.length === 0) return { status: "ok", found: "all that these settings need" };
  return {
    status: missing.some(({ status }) => status === "wrong") ? "wrong" : "slow",
    found: missing.map(({ flag, loss }) => `without ${flag} ${loss}`).join("; "),
    advice: `start Deno with ${missing.map(({ flag }) => flag).join(" ")}`,
    figures: { missing: missing.map(({ flag }) => flag) },
  };
}

function needs({ models, folder, host, port, unix, data }: Wanted): Need[] {
  const wrong = "wrong" as const;
  const listen = unix === undefined ? `${bracketed(host)}:${port}` : `unix:${resolve(unix)}`;
  return [
    ...[...models.map((path) => dirname(resolve(path))), ...(folder === undefined ? [] : [resolve(folder)])]
      .map((path) => ({
        permission: { name: "read" as const, path },
        flag: `--allow-read=${path}`,
        loss: "models there cannot be read",
        status: wrong,
      })),
    {
      permission: { name: "net" as const, host: listen },
      flag: `--allow-net=${listen}`,
      loss: "nothing can be served",
      status: wrong,
    },
    ...(data === undefined ? [] : [{
      permission: { name: "write" as const, path: resolve(data) },
      flag: `--allow-write=${resolve(data)}`,
      loss: "files and batches cannot be kept",
      status: wrong,
    }]),
    {
      permission: { name: "sys" as const, kind: "systemMemoryInfo" as const },
      flag: "--allow-sys=systemMemoryInfo",
      loss: "a model that does not fit is not refused before it is loaded",
      status: "slow" as const,
    },
  ];
}

/** Returns a host in the form of Deno's permissions. */
function bracketed(host: string): string {
  return host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
}
