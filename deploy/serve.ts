/**
 * A server for hosts that call a module's `fetch`, such as `deno serve`:
 *
 *   deno serve --host 127.0.0.1 --port 8080 --allow-read --allow-env --allow-sys=systemMemoryInfo \
 *     --allow-ffi=rust-kernels/target/release,rust-grammar/target/release deploy/serve.ts
 *
 * COMPY_MODEL names the GGUF file (default: the demo model), COMPY_API_KEY the clients' key, COMPY_DATA a folder for
 * files and batches (which needs --allow-write). One process holds the model, so this is not for `--parallel`.
 */
import { createServer, loadModel } from "compy";

/** Milliseconds for which the last answer may still be sent to its client. */
const GOODBYE_MS = 100;

const tell = (what: unknown) => {
  const text = what instanceof Error ? what.stack ?? what.message : String(what);
  // Strangers' text must not steer the terminal that shows the log.
  const shown = text.replace(/[^\P{Cc}\n]|[\u2028-\u202e\u2066-\u2069]/gu, "\ufffd").replaceAll("\n", "\n  ");
  Deno.stderr.writeSync(new TextEncoder().encode(`${shown}\n`));
};
const key = Deno.env.get("COMPY_API_KEY");
const model = await loadModel(Deno.env.get("COMPY_MODEL"), { reload: true, onWarning: tell });
const server = await createServer(model, {
  apiKeys: key ? [key] : [],
  openHealth: true,
  data: Deno.env.get("COMPY_DATA"),
  onError: tell,
});

/** Only the host knows its address, and `deno serve` listens on all addresses by default. */
function isFromHere({ remoteAddr }: Deno.ServeHandlerInfo): boolean {
  return !("hostname" in remoteAddr) || /^(127\.|::1$)/.test(remoteAddr.hostname);
}

/** Lets running answers end, because the host would cut them. */
async function stop(): Promise<void> {
  await server.close();
  await model.close();
  setTimeout(() => Deno.exit(0), GOODBYE_MS);
}
for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, stop);

export default {
  async fetch(request, info) {
    if (key || isFromHere(info)) return await server.fetch(request);
    return new Response("Set COMPY_API_KEY before other machines can send requests\n", { status: 403 });
  },
} satisfies Deno.ServeDefaultExport;
