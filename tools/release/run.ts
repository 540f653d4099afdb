/** Runs a program that must succeed, and returns what it prints on standard output. */
export async function run(
  command: string,
  args: readonly string[],
  options: { readonly cwd?: string; readonly env?: Record<string, string> } = {},
): Promise<string> {
  const child = new Deno.Command(command, { args: [...args], ...options, stdin: "null", stderr: "piped" });
  const { code, stdout, stderr } = await child.output();
  const decoder = new TextDecoder();
  if (code === 0) return decoder.decode(stdout);
  const said = [decoder.decode(stdout), decoder.decode(stderr)].join("\n").trim();
  throw new Error(`${command} ${args.join(" ")} failed with exit code ${code}:\n${said}`);
}
