// Exit code 0 where the server in this container answers. /health says that it lives, which is what a restart would mend; whether it
// takes work is /ready, which wants a key.
const port = Deno.env.get("COMPY_PORT") || "8080";
const answer = await fetch(`http://127.0.0.1:${port}/health`, { signal: AbortSignal.timeout(3000) })
  .catch(() => undefined);
await answer?.body?.cancel();
Deno.exit(answer?.ok ? 0 : 1);
