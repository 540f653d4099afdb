/**
 * A server for hosts that call a module's `fetch`, such as `deno serve`:
 *
 *   deno serve --host 127.0.0.1 --port 8080 --allow-read --allow-env --allow-sys=systemMemoryInfo \
 *     --allow-ffi=rust-kernels/target/release,rust-grammar/target/release deploy/serve.ts
 *
 * COMPY_MODEL names the GGUF file (default: the demo model), COMPY_API_KEY the key that clients have, COMPY_DATA a folder for files
 * and batches (and wants --allow-write). One process holds the model, so this is not for `--parallel`.
 */
import { createServer, loadModel } from "compy";

/** In which the end of the last answer reaches its client. */
const GOODBYE_MS = 100;

const tell = (what: unknown) => {
  const text = what instanceof Error ? what.stack : String(what);
  Deno.stderr.writeSync(new TextEncoder().encode(`${text}\n`));
};
const key = Deno.env.get("COMPY_API_KEY");
const model = await loadModel(Deno.env.get("COMPY_MODEL"), { reload: true, onWarning: tell });
const server = await createServer(model, {
  apiKeys: key ? [key] : [],
  openHealth: true,
  data: Deno.env.get("COMPY_DATA"),
  onError: tell,
});

/** The host alone knows where it listens, and `deno serve` listens everywhere unless it is told. */
function isFromHere({ remoteAddr }: Deno.ServeHandlerInfo): boolean {
  return !("hostname" in remoteAddr) || /^(127\.|::1$)/.test(remoteAddr.hostname);
}

/** Answers that run may end; the host would cut them. */
async function stop(): Promise<void> {
  await server.close();
  await model.close();
  setTimeout(() => Deno.exit(0), GOODBYE_MS);
}
for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, stop);

export default {
  async fetch(request, info) {
    if (key || isFromHere(info)) return await server.fetch(request);
    return new Response("Set COMPY_API_KEY before other machines may ask\n", { status: 403 });
  },
} satisfies Deno.ServeDefaultExport;
