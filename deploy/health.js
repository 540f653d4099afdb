// Exits with 0 if the server in this container answers. It asks /health, which shows a process that needs a
// restart. /ready shows whether the server accepts requests, but needs a key.
const port = Deno.env.get("COMPY_PORT") || "8080";
const answer = await fetch(`http://127.0.0.1:${port}/health`, { signal: AbortSignal.timeout(3000) })
  .catch(() => undefined);
await answer?.body?.cancel();
Deno.exit(answer?.ok ? 0 : 1);
