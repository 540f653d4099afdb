/** What a model's file holds, and what running it takes, for compy's own commands. */
export {
  type FormatReport,
  inspectModel,
  type ModelReport,
  type PlanReport,
} from "../engine/load/inspect.ts";
