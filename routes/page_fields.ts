import { SAMPLING_SETTINGS } from "../engine/mod.ts";
import type { Field } from "./page/settings.js";
import { describeSampling } from "./core/fields.ts";

/** The sampling settings that the page's dialog offers. */
export const SAMPLING_FIELDS: readonly Field[] = SAMPLING_SETTINGS.flatMap(([, setting]) => {
  const { api, label, option = api, kind, default: unset } = setting;
  return label === undefined ? [] : [{
    name: api.name,
    label,
    kind: "number",
    min: Math.max(api.min!, option.min!),
    max: Math.min(api.max!, option.max!),
    whole: kind === "whole",
    placeholder: String(unset ?? "random"),
    hint: `${describeSampling(setting)}.`,
  }];
});
