import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { occupantOf } from "./occupant.ts";

const HOST = "127.0.0.1";

/** Answers every connection with the given bytes; without any, keeps it open. */
async function answering(listener: Deno.Listener, answer: string): Promise<void> {
  for await (const connection of listener) {
    await connection.write(new TextEncoder().encode(answer)).catch(() => {});
    if (answer) connection.close();
  }
}

Deno.test("occupant: a free port has no occupant and stays free", async () => {
  const listener = Deno.listen({ hostname: HOST, port: 0 });
  const { port } = listener.addr;
  listener.close();
  assertEquals(await occupantOf({ host: HOST, port }), "nobody");
  assertEquals(await occupantOf({ host: HOST, port }), "nobody");
});

Deno.test("occupant: an answer with a request id comes from compy, any other answer from another program", async () => {
  const answers = {
    compy: "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nX-Request-Id: a\r\n\r\n",
    "another program": "SSH-2.0-OpenSSH_9.2\r\n\r\n",
  };
  for (const [occupant, answer] of Object.entries(answers)) {
    using listener = Deno.listen({ hostname: HOST, port: 0 });
    answering(listener, answer);
    assertEquals(await occupantOf({ host: HOST, port: listener.addr.port }), occupant);
  }
});

Deno.test("occupant: a silent program counts as another program after a second", async () => {
  using listener = Deno.listen({ hostname: HOST, port: 0 });
  answering(listener, "");
  assertEquals(await occupantOf({ host: HOST, port: listener.addr.port }), "another program");
});

Deno.test("occupant: leaves no socket behind, and ignores one left by a killed server", async () => {
  const folder = await Deno.makeTempDir();
  const unix = join(folder, "a.sock");
  // The script runs in a separate process, because `eval` has all permissions and this process does not.
  const evaluate = async (script: string) => {
    const { stdout } = await new Deno.Command(Deno.execPath(), { args: ["eval", "-q", script] }).output();
    return new TextDecoder().decode(stdout).trim();
  };
  const occupant = () =>
    evaluate(
      `const { occupantOf } = await import(${JSON.stringify(import.meta.resolve("./occupant.ts"))});
      console.log(await occupantOf(${JSON.stringify({ host: HOST, port: 1, unix })}));`,
    );
  try {
    assertEquals(await occupant(), "nobody");
    assertEquals([...Deno.readDirSync(folder)], []);
    await evaluate(`Deno.listen({ transport: "unix", path: ${JSON.stringify(unix)} }); Deno.exit(0);`);
    assertEquals(Deno.lstatSync(unix).isSocket, true);
    assertEquals(await occupant(), "nobody");
    assertEquals(Deno.lstatSync(unix).isSocket, true);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
