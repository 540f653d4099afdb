/** Reports a model file's content and the resources that running it needs, for compy's own commands. */
export {
  type FormatReport,
  inspectModel,
  type ModelReport,
  type PlanReport,
} from "../engine/load/inspect.ts";
export type { TowerReport } from "../engine/load/load_tower.ts";
export type { DrafterReport } from "../engine/load/drafters/report.ts";
