/** The campaigns of `deno task storms`: the rows of storms.json, and their scenarios. */
import { INPUTS } from "./inputs.ts";
import { JOBS } from "./jobs.ts";
import { SERVER } from "./server.ts";
import type { Scenario } from "./storm.ts";
import rows from "./storms.json" with { type: "json" };
import { TENANTS } from "./tenants.ts";

/** A campaign with its expected outcome. */
export interface Row {
  readonly name: string;
  readonly fault: string;
  readonly unit: string;
  /** Number of faults in half an hour of all campaigns. */
  readonly count: number;
  /** Minimum number of faults for a useful measurement; default 1. */
  readonly least?: number;
  readonly outcome: string;
  /** Upper limits of figures. A scenario also throws at the first broken promise. */
  readonly most: Readonly<Record<string, number | undefined>>;
}

export const ROWS: readonly Row[] = rows;
export const SCENARIOS: Readonly<Record<string, Scenario>> = { ...JOBS, ...SERVER, ...TENANTS, ...INPUTS };

/** Returns a row of the published table. */
export function tableLine({ name, fault, outcome }: Row, result: string): string {
  return `| \`${name}\` | ${fault} | ${outcome} | ${result} |`;
}
