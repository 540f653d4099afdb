import type { Finding, Wanted, World } from "../types.ts";
import { reasonOf } from "../units.ts";

/** Checks the address at which a server would listen. */
export async function checkAddress(
  world: Pick<World, "occupantOf">,
  wanted: Pick<Wanted, "host" | "port" | "unix">,
): Promise<Finding> {
  const address = wanted.unix ?? `${wanted.host}:${wanted.port}`;
  const other = wanted.unix === undefined ? "--port (0 takes any free one)" : "--unix";
  try {
    const occupant = await world.occupantOf(wanted);
    const figures = { address, occupant };
    if (occupant === "nobody") return { status: "ok", found: `${address} is free`, figures };
    if (occupant === "compy") return { status: "ok", found: `compy is serving at ${address}`, figures };
    const advice = `end the other program, or choose another with ${other}`;
    return { status: "wrong", found: `another program uses ${address}`, advice, figures };
  } catch (error) {
    const advice = wanted.unix === undefined
      ? "choose another address with --host and --port; ports below 1024 are for privileged users"
      : "choose another path with --unix, in a folder that this user may write to";
    return { status: "wrong", found: `Cannot listen on ${address}: ${reasonOf(error)}`, advice };
  }
}
