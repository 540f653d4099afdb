import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import {
  chatLine,
  createBatch,
  inDataFolder,
  linesOf,
  upload,
  waitFor,
  withBatches,
} from "../../routes/testing_batches.ts";

/* The commands of docs/OPERATIONS.md back up and restore the data folder. */

const GUIDE = fromFileUrl(new URL("../../docs/OPERATIONS.md", import.meta.url));
const SLOW = { tokenMs: 5, slots: 1, parallel: 1 };
const lines = (count: number) => Array.from({ length: count }, (_, n) => chatLine(`q${n}`));
const onLinux = Deno.build.os === "linux";

/** Runs the commands under a heading of the guide on another data folder. The test starts services. */
async function follow(heading: string, data: string, backups: string): Promise<void> {
  const [, section] = (await Deno.readTextFile(GUIDE)).split(`\n### ${heading}\n`);
  const commands = /```sh\n(.*?)```/s.exec(section)![1];
  for (const part of ["systemctl stop", "systemctl start", "/var/lib/compy", "/var/backups/"]) {
    assertStringIncludes(commands, part);
  }
  const script = `set -e\nsystemctl() { :; }\n${commands}`
    .replaceAll("/var/lib/compy", data).replaceAll("/var/backups", backups);
  const { success, stderr } = await new Deno.Command("sh", { args: ["-c", script] }).output();
  assert(success, new TextDecoder().decode(stderr));
}

Deno.test(
  { name: "backup: restores files and batches by the documented commands", ignore: !onLinux },
  () =>
    inDataFolder((backups) =>
      inDataFolder(async (data) => {
        let input = "", ended = "", running = "", later = "";
        await withBatches(data, SLOW, async ({ client }) => {
          input = await upload(client, lines(3));
          ended = (await createBatch(client, input)).id;
          await waitFor(client, ended, "completed");
          running = (await createBatch(client, await upload(client, lines(12)))).id;
          while ((await client.batches.retrieve(running)).request_counts!.completed < 2);
        });
        await follow("Back up", data, backups);
        await withBatches(data, {}, async ({ client }) => {
          await waitFor(client, running, "completed");
          later = await upload(client, lines(1), "later.jsonl");
          await client.files.delete(input);
        });
        await Deno.writeTextFile(join(data, "compy.sqlite-wal"), "of the database that is replaced");
        await follow("Restore", data, backups);
        await withBatches(data, {}, async ({ client, reports }) => {
          assertEquals(await (await client.files.content(input)).text(), lines(3).join("\n"));
          await assertRejects(() => client.files.retrieve(later), Error, "There is no file");
          const first = await client.batches.retrieve(ended);
          assertEquals(first.status, "completed");
          assertEquals((await linesOf(client, first.output_file_id)).length, 3);
          const second = await waitFor(client, running, "completed");
          assertEquals(second.request_counts, { total: 12, completed: 12, failed: 0 });
          const answers = await linesOf(client, second.output_file_id);
          assertEquals(answers.map(({ custom_id }) => custom_id), lines(12).map((_, n) => `q${n}`));
          assertEquals(reports, []);
        });
      })
    ),
);

Deno.test(
  { name: "backup: a snapshot of a running server resumes its batch", ignore: !onLinux },
  () =>
    inDataFolder((snapshots) =>
      inDataFolder(async (data) => {
        const snapshot = join(snapshots, "data");
        let input = "", id = "";
        await withBatches(data, SLOW, async ({ client }) => {
          input = await upload(client, lines(12));
          id = (await createBatch(client, input)).id;
          while ((await client.batches.retrieve(id)).request_counts!.completed < 2);
          // The server runs in this process and changes nothing meanwhile.
          assert(new Deno.Command("cp", { args: ["-a", data, snapshot] }).outputSync().success);
          await waitFor(client, id, "completed");
        });
        await withBatches(snapshot, {}, async ({ client, reports }) => {
          assertEquals(await (await client.files.content(input)).text(), lines(12).join("\n"));
          const batch = await waitFor(client, id, "completed");
          assertEquals(batch.request_counts, { total: 12, completed: 12, failed: 0 });
          assertEquals(reports, []);
        });
      })
    ),
);
