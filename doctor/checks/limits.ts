import type { Finding, World } from "../types.ts";
import { readText } from "../read_text.ts";
import { size } from "../units.ts";

/** Minimum bytes of stack: V8 uses 984 KiB before it refuses more recursion, and Deno's own calls are added. */
const LEAST_STACK = 2 * 2 ** 20;
/** Bytes of address space that V8 reserves before it runs any program. */
const RESERVED = 34e9;

/**
 * Checks the limits of `ulimit` that can end the process without a message. A child process prints these limits,
 * because it inherits them.
 */
export async function checkLimits(world: Pick<World, "readText">): Promise<Finding> {
  const text = await world.readText("/proc/self/limits");
  if (text === undefined) return { status: "ok", found: "the limits of this process cannot be known here" };
  const stack = limitOf(text, "Max stack size");
  if (stack < LEAST_STACK) {
    return {
      status: "wrong",
      found:
        `a stack of ${stack / 1024} KiB (ulimit -s), and ${
          LEAST_STACK / 1024
        } are needed: deep recursion would end ` +
        "the process without a message",
      advice: "raise it with ulimit -s 8192, or systemd's LimitSTACK=8M",
    };
  }
  const space = limitOf(text, "Max address space");
  if (space === Infinity) return { status: "ok", found: "stack and address space suffice" };
  return {
    status: "slow",
    found:
      `${size(space)} of address space (ulimit -v): V8 reserves ${
        size(RESERVED)
      }, more for each thread, and ends the ` +
      "process when it gets none",
    advice: "limit memory by a control group instead: systemd's MemoryMax=, Docker's --memory",
  };
}

/**
 * Throws if a limit of this process is too small for any command, and warns of one that may end it. Then gives up the
 * permission that reading the limits needs.
 */
export async function requireLimits(warn: (message: string) => void): Promise<void> {
  const { status, found, advice } = await checkLimits({ readText });
  await Deno.permissions.revoke({ name: "run", command: "cat" });
  const message = `This process has ${found}; ${advice}`;
  if (status === "wrong") throw new Error(message);
  if (status === "slow") warn(message);
}

/** Returns a soft limit in bytes; Infinity if there is none. */
function limitOf(text: string, name: string): number {
  const bytes = new RegExp(`^${name} +(\\d+)`, "m").exec(text)?.[1];
  return bytes === undefined ? Infinity : Number(bytes);
}
