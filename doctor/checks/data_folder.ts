import type { Finding, Wanted, World } from "../types.ts";
import { reasonOf, size } from "../units.ts";

/** Free bytes below which uploads and answers soon fill the disk. */
const LITTLE_BYTES = 1e9;
/** Free bytes that SQLite and a journal need to start. */
const LEAST_BYTES = 16e6;

/** Checks the folder in which a server stores files and batches. */
export async function checkDataFolder(
  world: Pick<World, "tryWriting" | "isLocked" | "freeSpace" | "occupantOf">,
  wanted: Wanted,
): Promise<Finding> {
  const { data } = wanted;
  if (data === undefined) return { status: "ok", found: "none: files and batches are not offered" };
  const advice = "choose another folder with --data, or serve without files and batches: --data none";
  try {
    await world.tryWriting(data);
  } catch (error) {
    return { status: "wrong", found: `Cannot write to ${data}: ${reasonOf(error)}`, advice };
  }
  const free = await world.freeSpace(data);
  const locked = await world.isLocked(data);
  const figures = { path: data, locked, ...(free !== undefined && { free }) };
  const found = `${data}, writable${free === undefined ? "" : `, ${size(free)} free`}`;
  if (locked && !await isServing(world, wanted)) {
    return { status: "wrong", found: `${data} is in use by another server`, advice, figures };
  }
  if (free !== undefined && free < LEAST_BYTES) {
    return {
      status: "wrong",
      found: `${data} has ${size(free)} left`,
      advice: `make room, or ${advice}`,
      figures,
    };
  }
  if (free !== undefined && free < LITTLE_BYTES) {
    return {
      status: "slow",
      found,
      advice: "make room: uploads and batches stop where it runs out",
      figures,
    };
  }
  return { status: "ok", found: locked ? `${found}, in use by the server` : found, figures };
}

/** Returns whether the server that holds the folder's lock is the one at the wanted address. */
async function isServing(world: Pick<World, "occupantOf">, wanted: Wanted): Promise<boolean> {
  try {
    return await world.occupantOf(wanted) === "compy";
  } catch {
    return false;
  }
}
