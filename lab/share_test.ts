import { assert, assertEquals } from "@std/assert";
import { ROOT } from "../bench/shell.ts";

const sh = async (script: string, pid: number | string) => {
  const { stdout } = await new Deno.Command("sh", { args: ["-c", script, `${pid}`], stderr: "null" })
    .output();
  return new TextDecoder().decode(stdout).trim();
};

Deno.test({
  name: "bench:share: a signal that ends it ends its server",
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    for (const [signal, code] of [["SIGTERM", 143], ["SIGINT", 130]] as const) {
      const child = new Deno.Command("deno", {
        args: [
          "run",
          "-q",
          "-P=share",
          "lab/share.ts",
          "--model",
          "models/demo.gguf",
          "--tokens",
          "400",
          "--rounds",
          "100",
        ],
        cwd: ROOT,
        stdin: "null",
        stdout: "null",
        stderr: "null",
      }).spawn();
      let server = "";
      for (const end = Date.now() + 20_000; server === "" && Date.now() < end;) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        server = await sh("cat /proc/$0/task/*/children", child.pid);
      }
      assert(/^\d+$/.test(server), `No server was started: ${server}`);
      // Once the server answers, it writes nothing to the closed pipe any more, so only the signal can end it.
      for (const end = Date.now() + 20_000; Date.now() < end;) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        const loaded = await sh("grep -l ^compy- /proc/$0/task/*/comm", server);
        if (loaded !== "") break;
      }
      await new Promise((resolve) => setTimeout(resolve, 500));
      child.kill(signal);
      assertEquals((await child.status).code, code);
      let runs = "yes";
      for (const end = Date.now() + 20_000; runs !== "" && Date.now() < end;) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        // A zombie counts as ended.
        runs = await sh("grep '^State:.[^Z]' /proc/$0/status", server);
      }
      assertEquals(runs, "", signal);
    }
  },
});
