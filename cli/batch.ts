import { batchCommand as runBatchCommand } from "../jobs/cli.ts";
import { execute } from "../routes/execute.ts";
import { loadWithProgress, modelPath } from "./model.ts";

/** `batch …` of the command line: the job runner, with an engine in this process. Returns the exit code. */
export function batchCommand(args: readonly string[]): Promise<number> {
  return runBatchCommand(
    [...args],
    async ({ model, ...options }) => (await loadWithProgress({ ...options, model: modelPath(model) })).engine,
    execute,
  );
}
