import { SAMPLING_SETTINGS } from "../engine/mod.ts";
import type { Field } from "./page/settings.js";
import { describeSampling } from "./core/fields.ts";

/** All sampling settings, as fields of the page's dialog. */
export const SAMPLING_FIELDS: readonly Field[] = SAMPLING_SETTINGS.map(([, setting]) => {
  const { api, label, common, option = api, kind, default: unset } = setting;
  const described = {
    name: api.name,
    label,
    hint: `${describeSampling(setting).replaceAll("`", "")}.`,
    folded: !common,
  };
  if (kind === "texts") {
    return { ...described, kind: "json", list: true, placeholder: JSON.stringify(unset) };
  }
  if (kind === "biases") return { ...described, kind: "json", placeholder: '{ "TOKEN ID": -100 }' };
  return {
    ...described,
    kind: "number",
    min: Math.max(api.min!, option.min!),
    max: Math.min(api.max!, option.max!),
    whole: kind === "whole",
    placeholder: String(unset ?? "random"),
  };
});
