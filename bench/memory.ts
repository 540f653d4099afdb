import { type BackendName, type CompileOptions, KV_WORDS } from "../engine/backend/backend.ts";
import { freeMemory } from "../engine/load/free_memory.ts";
import { megabytes, shortage, totalOf } from "../engine/load/memory_error.ts";
import { memoryOf } from "../engine/load/size.ts";
import type { Plan } from "../engine/plan/plan.ts";

interface Memory {
  readonly backend?: BackendName;
  /** Bytes of all weights of the model. */
  readonly weights: number;
  /** Maximum bytes of memory to use; by default the free memory, if known. */
  readonly freeBytes?: number;
}

/**
 * Throws MemoryError, as serving does, if the weights and the sequences of this size do not fit into free memory.
 * `settings` names the settings that decide the size, for the error's advice.
 */
export function checkMemory(
  plan: Plan,
  size: CompileOptions,
  { backend, weights, freeBytes }: Memory,
  settings: { readonly all: string; readonly less: string },
): void {
  const free = backend === "webgpu" ? undefined : freeBytes ?? freeMemory();
  if (free === undefined) return;
  const needs = {
    ...memoryOf(plan, size),
    weights,
    kvNote: [`${settings.all}, in ${KV_WORDS[plan.kv.type]}`],
  };
  if (totalOf(needs) <= free) return;
  const fixed = needs.weights + needs.activations;
  const fits = fixed < free ? [`${settings.less}: ${megabytes(free - fixed)} are left for them`] : [];
  throw shortage(needs, { free }, fits);
}
