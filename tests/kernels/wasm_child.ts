/** Answers with the demo model on the available kernels, then with a constraint. */
import { CompyError, loadModel } from "../../mod.ts";

await using model = await loadModel(undefined, { parallel: 1 });
const { usage } = await model.generate("Hello", { maxTokens: 4, temperature: 0, ignoreEos: true }).answer();
const code = await model.generate("Hello", { maxTokens: 4, schema: true }).answer()
  .then(() => "answered", (error) => error instanceof CompyError ? error.code : String(error));
const found = { name: model.info.backend.name, tokens: usage.completionTokens, code };
await Deno.stdout.write(new TextEncoder().encode(JSON.stringify(found)));
