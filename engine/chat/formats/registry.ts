import type { CallFormat } from "./format.ts";
import { general } from "./general.ts";
import { hermes } from "./hermes.ts";

/** The first that recognises a model's template is its format; the last takes every template. */
export const CALL_FORMATS: readonly CallFormat[] = [
  hermes,
  general,
];
