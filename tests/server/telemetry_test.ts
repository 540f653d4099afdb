import { assert, assertEquals } from "@std/assert";
import { root } from "../../testing/commands.ts";

interface ExportedSpan {
  readonly name: string;
  readonly traceId: string;
  readonly parentSpanId: string;
  readonly kind: number;
  readonly attributes: { key: string; value: Record<string, unknown> }[];
}

/** Serves on a fake engine, answers one request, and stops. */
const SERVER = `
  import { serveHttp } from "./routes/serve.ts";
  import { FakeEngine } from "./routes/testing.ts";
  const server = serveHttp(new FakeEngine(), { signals: false });
  const body = JSON.stringify({ model: "demo", prompt: "secret words", max_tokens: 3, stream: true });
  const head = "POST /v1/completions HTTP/1.1\\r\\nhost: localhost\\r\\ncontent-type: application/json\\r\\n" +
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\\r\\nconnection: close\\r\\n" +
    "content-length: " + body.length + "\\r\\n\\r\\n";
  const connection = await Deno.connect({ hostname: "127.0.0.1", port: server.port }); // fetch() would add a span of its own
  await connection.write(new TextEncoder().encode(head + body));
  await new Response(connection.readable).text();
  await server.shutdown(0);`;

Deno.test("telemetry: each request exports one span without texts, as a child of its caller's span", async () => {
  const received: string[] = [];
  const collector = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, async (request) => {
    received.push(await request.text());
    return Response.json({});
  });
  try {
    const { code, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["eval", "-q", SERVER],
      cwd: root,
      env: {
        OTEL_DENO: "true",
        OTEL_DENO_CONSOLE: "ignore",
        OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${collector.addr.port}`,
        OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
        OTEL_BSP_SCHEDULE_DELAY: "100",
      },
    }).output();
    assertEquals(code, 0, new TextDecoder().decode(stderr));
  } finally {
    await collector.shutdown();
  }
  const spans: ExportedSpan[] = received.map((text) => JSON.parse(text)).flatMap(({ resourceSpans = [] }) =>
    resourceSpans.flatMap(({ scopeSpans }: { scopeSpans: { spans: ExportedSpan[] }[] }) =>
      scopeSpans.flatMap(({ spans }) => spans)
    )
  );
  const span = spans.find(({ name }) => name === "POST /v1/completions");
  if (!span) throw new Error(received.join("\n"));
  assertEquals([span.traceId, span.parentSpanId, span.kind], [
    "0af7651916cd43dd8448eb211c80319c",
    "b7ad6b7169203331",
    2,
  ]);
  const value = (key: string) => Object.values(span.attributes.find((it) => it.key === key)?.value ?? {})[0];
  assertEquals(Number(value("http.response.status_code")), 200);
  assertEquals(Number(value("gen_ai.usage.output_tokens")), 3);
  assertEquals(value("gen_ai.request.model"), "demo");
  assert(!received.join().includes("secret"));
});
