// @ts-check
/** The server answers with the fields themselves in place of this module (page.ts); tests run it. */
export { SAMPLING_FIELDS } from "../page_fields.ts";
