/** Builds the release folder: everything that compy needs, including Deno, in one tar. */
import { basename, dirname, join } from "@std/path";
import { libraryFile, thisPlatform } from "../../ffi/find.ts";
import { DENO_VERSION, NAME, VERSION } from "../../package.ts";
import { type DenoJson, installedConfig } from "./commands.ts";
import { shellLauncher } from "./launchers.ts";
import { LIBRARIES } from "./libraries.ts";
import { copyShipped } from "./npm.ts";
import { run } from "./run.ts";

/** Files of deploy/ that belong to a release. */
const DEPLOYED = [
  "compy.service",
  "Caddyfile",
  "monitoring/prometheus.yml",
  "monitoring/alerts.yml",
  "monitoring/grafana.json",
];

/** Returns the folder's name, such as `compy-0.1.0-linux-x64`. */
export function folderName(): string {
  const { os, cpu } = thisPlatform();
  return `${NAME}-${VERSION}-${os}-${cpu}`;
}

/** Writes the release into a folder that has the bundle in `js/`. */
export async function writeReleaseFolder(
  root: string,
  json: DenoJson,
  libraries: string,
  folder: string,
): Promise<void> {
  await copyShipped(root, folder);
  await Deno.mkdir(join(folder, "monitoring"));
  for (const name of DEPLOYED) await Deno.copyFile(join(root, "deploy", name), join(folder, name));
  for (const { name } of LIBRARIES) {
    await Deno.copyFile(join(libraries, libraryFile(name)), join(folder, libraryFile(name)));
  }
  await Deno.copyFile(await denoBinary(root), join(folder, "deno"));
  await Deno.writeTextFile(join(folder, "deno.json"), installedConfig(json, ["."]));
  await Deno.writeTextFile(join(folder, NAME), await shellLauncher(json));
  for (const name of ["deno", NAME]) await Deno.chmod(join(folder, name), 0o755);
}

/** Returns the path of Deno's binary for this platform, from npm's package. The binary is fetched once. */
async function denoBinary(root: string): Promise<string> {
  const { os, cpu } = thisPlatform();
  const name = `@deno/${os}-${cpu}${os === "linux" ? "-glibc" : ""}`;
  const folder = join(root, `.cache/deno-${DENO_VERSION}-${os}-${cpu}`);
  const binary = join(folder, "package/deno");
  try {
    await Deno.stat(binary);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    await Deno.mkdir(folder, { recursive: true });
    const packed = await run("npm", [
      "pack",
      "--json",
      "--pack-destination",
      folder,
      `${name}@${DENO_VERSION}`,
    ]);
    const [{ filename }] = JSON.parse(packed);
    await run("tar", ["-xzf", join(folder, filename), "-C", folder]);
    await Deno.remove(join(folder, filename));
  }
  return binary;
}

/** Packs a folder beside it, so that it unpacks to one folder. Returns the tar's path. */
export async function tar(folder: string, dist: string): Promise<string> {
  const path = join(dist, `${basename(folder)}.tar.gz`);
  // With these options of GNU tar, the same folder gives the same bytes.
  const stable = Deno.build.os === "linux"
    ? ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]
    : [];
  await run("tar", [...stable, "-czf", path, "-C", dirname(folder), basename(folder)], {
    env: { GZIP: "-n9" },
  });
  return path;
}
