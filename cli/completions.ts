import { UsageError } from "./shared/flags.ts";
import { captured, out } from "./shared/terminal.ts";

const HELP = `Print shell completions for compy's commands and options.

Usage: deno task completions SHELL

  bash    put the output into ~/.local/share/bash-completion/completions/compy
  zsh     append the output to ~/.zshrc
  fish    put the output into ~/.config/fish/completions/compy.fish

  --help  print this text

The completions need compy on the PATH (deno task link puts it there). A shell cannot complete the tasks of a checkout.
Exit code: 0 done, 2 wrong usage.

Example:
  deno task completions fish > ~/.config/fish/completions/compy.fish
`;

/** A command. `load` returns a function that runs the words after the name and returns the exit code. */
interface Command {
  readonly summary: string;
  readonly load: () => Promise<(args: readonly string[]) => Promise<number>>;
  /** Whether the command has verbs, and prints its help if no verb is given. */
  readonly hasVerbs?: boolean;
}

/** A word that may come next on the command line, with its description. */
export type Commands = Readonly<Record<string, Command>>;

/** A word that may come next, with its description. */
interface Word {
  readonly word: string;
  readonly summary: string;
}

/** A command with its options and, if it has verbs, the words after each verb. */
interface Completed extends Word {
  readonly options: readonly Word[];
  readonly verbs: readonly (Word & { readonly options: readonly Word[] })[];
}

const SHELLS: Readonly<Record<string, (commands: readonly Completed[]) => string>> = { bash, zsh, fish };

/** Runs `completions …` of the command line, for `commands`. Returns the exit code. */
export async function completionsCommand(args: readonly string[], commands: Commands): Promise<number> {
  if (args.some((arg) => arg === "--help" || arg === "-h")) {
    out(HELP);
    return 0;
  }
  const option = args.find((arg) => arg.startsWith("-"));
  if (option !== undefined) throw new UsageError(`There is no option ${option}`);
  const shells = Object.keys(SHELLS).join(", ");
  if (args.length !== 1) throw new UsageError(`Give one shell: ${shells}`);
  if (!Object.hasOwn(SHELLS, args[0])) {
    throw new UsageError(`The shell must be one of ${shells} (got "${args[0]}")`);
  }
  out(SHELLS[args[0]](await completed(commands)));
  return 0;
}

/** Returns all commands with the words that their help lists. */
async function completed(commands: Commands): Promise<Completed[]> {
  const found: Completed[] = [];
  for (const [word, { summary, load }] of Object.entries(commands)) {
    const command = await load();
    const help = await captured(() => command(["--help"]));
    const verbs = [];
    for (const verb of verbsOf(help)) {
      const own = /: deno task \S+ \S+ --help$/m.test(help);
      const text = own ? await captured(() => command([verb.word, "--help"])) : help;
      verbs.push({ ...verb, options: optionsOf(text) });
    }
    found.push({ word, summary, options: optionsOf(help), verbs });
  }
  return found;
}

/** Returns the options that a help lists at the beginning of a line. */
export function optionsOf(help: string): Word[] {
  const lines = help.matchAll(
    /^ {2}(?:-\w, )?(--?[a-z][\w-]*)(?: [A-Z][\w.,|]*)*(?: {2,}| (?=[a-z])|\n {4,})(.*)$/gm,
  );
  const found = [...lines].map(([, word, summary]) => ({ word, summary: summary.trim() }));
  const common = [{ word: "--library", summary: "the folder of the native libraries" }, {
    word: "--log-level",
    summary: "messages on standard error",
  }];
  return [...new Map([...found, ...common].map((entry) => [entry.word, entry])).values()];
}

/** Returns the verbs or words that a help lists, if its usage line requires one. */
export function verbsOf(help: string): Word[] {
  if (!/^Usage: deno task \S+ (?:VERB|SHELL)/m.test(help)) return [];
  return [...help.matchAll(/^ {2}([a-z][a-z-]*) {2,}(.+)$/gm)].map(([, word, summary]) => ({
    word,
    summary,
  }));
}

function list(words: readonly Word[]): string {
  return words.map(({ word }) => word).join(" ");
}

function bash(commands: readonly Completed[]): string {
  const cases = commands.flatMap(({ word, options, verbs }) => [
    ...verbs.map((verb) => `    "${word} ${verb.word}") words="${list(verb.options)}" ;;`),
    verbs.length > 0
      ? `    "${word} "*) [ "$COMP_CWORD" -gt 2 ] || words="${list(verbs)} --help" ;;`
      : `    "${word} "*) words="${list(options)}" ;;`,
  ]);
  return `# Completes compy's words; other words are files.
_compy() {
  local words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="${list(commands)} --help --version"
  else
    case "\${COMP_WORDS[1]} \${COMP_WORDS[2]}" in
${cases.join("\n").replaceAll(/^ {4}/gm, "      ")}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _compy compy
`;
}

/** Returns the script for zsh, which can load bash completions. */
function zsh(commands: readonly Completed[]): string {
  return `autoload -Uz compinit bashcompinit && compinit && bashcompinit\n${bash(commands)}`;
}

function fish(commands: readonly Completed[]): string {
  const quoted = (text: string) => `'${text.replace(/[\\']/g, "\\$&")}'`;
  const option = (condition: string, { word, summary }: Word) => {
    const name = word.startsWith("--") ? `-l ${word.slice(2)}` : `-o ${word.slice(1)}`;
    return `complete -c compy -n ${quoted(condition)} ${name} -d ${quoted(summary)}`;
  };
  const common = ["help", "version"].map((word) => `complete -c compy -n __fish_use_subcommand -l ${word}`);
  const own = commands.flatMap(({ word, summary, options, verbs }) => [
    `complete -c compy -n __fish_use_subcommand -f -a ${word} -d ${quoted(summary)}`,
    ...verbs.length > 0 ? [] : options.map((entry) => option(`__fish_seen_subcommand_from ${word}`, entry)),
    ...verbs.flatMap((verb) => {
      const names = verbs.map(({ word }) => word).join(" ");
      const chosen = `__fish_seen_subcommand_from ${word}; and not __fish_seen_subcommand_from ${names}`;
      const seen = `__fish_seen_subcommand_from ${word}; and __fish_seen_subcommand_from ${verb.word}`;
      return [
        `complete -c compy -n ${quoted(chosen)} -f -a ${verb.word} -d ${quoted(verb.summary)}`,
        ...verb.options.map((entry) => option(seen, entry)),
      ];
    }),
  ]);
  return [...common, ...own].map((line) => `${line}\n`).join("");
}
