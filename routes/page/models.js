// @ts-check

/**
 * A model that the server offers. `images`: whether it reads images; undefined as long as the model is not loaded.
 * @typedef {{ id: string, state: string, context: number | undefined, images: boolean | undefined }} Model
 */

/** Labels of the states in which a model is not ready. */
const SHOWN = /** @type {Record<string, string>} */ ({
  unloaded: "not loaded yet",
  loading: "being loaded",
  draining: "being unloaded",
  failed: "failed",
});

/**
 * Returns the models of a `/v1/models` list.
 * @param {any} list
 * @returns {Model[]}
 */
export function modelsOf(list) {
  return (list?.data ?? []).map((/** @type {any} */ { id, state, status, meta, architecture }) => ({
    id,
    state: state ?? status?.value ?? "ready",
    context: meta?.n_ctx ?? undefined,
    images: architecture?.input_modalities?.includes("image"),
  }));
}

/** @param {Model} model */
export function modelLabel({ id, state }) {
  return SHOWN[state] ? `${id} (${SHOWN[state]})` : id;
}
