import type { Finding, World } from "../types.ts";
import { size } from "../units.ts";

/** Bytes of memory for the program itself, without a model. */
const LEAST_BYTES = 256e6;
/** Free bytes of memory below which no useful model fits. */
const LITTLE_BYTES = 1e9;

/** Checks the memory that is free for models. */
export function checkMemory(world: Pick<World, "memory">): Finding {
  const memory = world.memory();
  if (memory === undefined) {
    return {
      status: "ok",
      found: "the free memory is unknown here; a model that does not fit is not refused",
    };
  }
  const { total, available, limit, swapped } = memory;
  const free = Math.min(available, limit);
  const limited = limit < total;
  const figures = { total, available, swapped, ...(limited && { limit }) };
  const found = `${size(free)} free of ${size(total)}` +
    (limited ? `; a control group allows ${size(limit)}` : "") +
    (swapped > LITTLE_BYTES ? `; ${size(swapped)} are swapped out` : "");
  const more = limited ? "raise the limit (systemd's MemoryMax=, Docker's --memory), or end" : "End";
  if (free < LEAST_BYTES) {
    return {
      status: "wrong",
      found: `${found}; compy takes ${size(LEAST_BYTES)} without a model`,
      advice: `${more} other programs`,
      figures,
    };
  }
  if (free < LITTLE_BYTES) {
    return { status: "slow", found, advice: `${more} other programs; small models only`, figures };
  }
  return { status: "ok", found, figures };
}
