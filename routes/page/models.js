// @ts-check

/**
 * A model that the server offers.
 * @typedef {{ id: string, state: string, context: number | undefined }} Model
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
  return (list?.data ?? []).map((/** @type {any} */ { id, state, status, meta }) => ({
    id,
    state: state ?? status?.value ?? "ready",
    context: meta?.n_ctx ?? undefined,
  }));
}

/** @param {Model} model */
export function modelLabel({ id, state }) {
  return SHOWN[state] ? `${id} (${SHOWN[state]})` : id;
}
