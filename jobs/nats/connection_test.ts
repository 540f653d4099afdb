import { assertEquals, assertRejects } from "@std/assert";
import { BatchError } from "../errors.ts";
import { createConnection, createServer } from "node:net";
import { openConnection } from "./connection.ts";

Deno.test("openConnection: says what to do when no server is there", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  const error = await assertRejects(
    () => openConnection({ servers: [`127.0.0.1:${port}`], tls: false }, "test", () => {}),
    BatchError,
    `Cannot reach a NATS server at 127.0.0.1:${port}`,
  );
  assertEquals([error.code, error.resumable], ["queue_unavailable", true]);
  const creds = { servers: [`127.0.0.1:${port}`], tls: false, credsFile: "missing.creds" };
  await assertRejects(() => openConnection(creds, "test", () => {}), BatchError, '"missing.creds"');
});

Deno.test("openConnection: a reset of an abandoned socket does not end the process", async () => {
  const unreachable = { servers: ["127.0.0.1:1"], tls: false };
  await assertRejects(() => openConnection(unreachable, "test", () => {}), BatchError);
  const server = createServer((socket) => socket.on("data", () => socket.resetAndDestroy()));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const socket = createConnection(port, "127.0.0.1");
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.write("PING\r\n");
  await closed;
  await new Promise<void>((resolve) => server.close(() => resolve()));
});
