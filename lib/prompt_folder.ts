/** Reports and clears a prompt cache folder (`promptCache`) without a model, for compy's own commands. */
export { type CacheReport, reportCache, wipeCache } from "../engine/cache/disk/admin.ts";
