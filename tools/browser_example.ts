/** Builds examples/browser/ into a folder for any static file server: dist/browser/, or the folder in the argument. */
import { fromFileUrl, join } from "@std/path";
import { shipped, wasmModule } from "../package.ts";

const PAGE = fromFileUrl(shipped("examples/browser/"));

/** Bundles the page's script and copies the files that it fetches. Throws if `deno bundle` fails. */
export async function buildBrowserExample(folder: string): Promise<void> {
  await Deno.mkdir(folder, { recursive: true });
  const bundled = await new Deno.Command("deno", {
    args: ["bundle", "-q", "--platform", "browser", "-o", join(folder, "chat.js"), join(PAGE, "chat.ts")],
  }).output();
  if (!bundled.success) throw new Error(new TextDecoder().decode(bundled.stderr));
  await Deno.copyFile(join(PAGE, "index.html"), join(folder, "index.html"));
  await Deno.copyFile(wasmModule(), join(folder, "compy.wasm"));
  await Deno.copyFile(shipped("models/demo.gguf"), join(folder, "demo.gguf"));
}

if (import.meta.main) await buildBrowserExample(Deno.args[0] ?? "dist/browser");
