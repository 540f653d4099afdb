import { quoted } from "../shared/start.ts";
import { BatchStore, DataFolder } from "../../lib/serving.ts";
import { explained } from "../../lib/system_errors.ts";

/**
 * Makes the folder of files and batches and locks it; call it before a large model is loaded. Throws Error where nothing can be
 * written there, where another server uses it, and for a database of another version.
 */
export async function openDataFolder(path: string): Promise<DataFolder> {
  let folder: DataFolder | undefined;
  try {
    Deno.mkdirSync(path, { recursive: true, mode: 0o700 });
    Deno.removeSync(Deno.makeTempFileSync({ dir: path, prefix: "writable-" }));
    folder = await DataFolder.open(path);
    new BatchStore(folder.database).close();
    return folder;
  } catch (error) {
    folder?.close();
    throw noDataFolder(path, error);
  }
}

/** Says what to do where files and batches cannot be kept. */
function noDataFolder(path: string, error: unknown): unknown {
  const what = `Cannot keep files and batches in "${path}"`;
  const otherwise = "choose another folder with --data, or serve without them: --data none";
  if (!(error instanceof Deno.errors.NotCapable)) return explained(what, error, otherwise);
  return new Error(
    `${what}: this task may write to .compy only. Allow it with deno run -P=serve --allow-write=${
      quoted(path)
    } ` +
      `main.ts serve --data ${quoted(path)}, or serve without them: --data none`,
  );
}
