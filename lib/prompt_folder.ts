/** A folder of prompts (`promptCache`), looked at from outside, for compy's own commands. */
export { type CacheReport, reportCache, wipeCache } from "../engine/cache/disk/admin.ts";
