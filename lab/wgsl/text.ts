/** What a text says of its names, before it is walked through. */
import type { Block, Expression, Statement } from "./syntax.ts";

/** The variable that a place is in; empty for what is no place. */
export function rootOf(e: Expression): string {
  if (e.kind === "name") return e.name;
  if (e.kind === "index" || e.kind === "member") return rootOf(e.of);
  return "";
}

const assignedOf = new WeakMap<Block, ReadonlySet<string>>();

/** Variables that a block assigns, in whole or in part. */
export function assigned(block: Block): ReadonlySet<string> {
  const known = assignedOf.get(block);
  if (known) return known;
  const found = new Set<string>();
  for (const s of block) {
    if (s.kind === "assign") found.add(rootOf(s.to));
    for (const inner of blocksOf(s)) for (const name of assigned(inner)) found.add(name);
    if (s.kind === "for" && s.next?.kind === "assign") found.add(rootOf(s.next.to));
  }
  assignedOf.set(block, found);
  return found;
}

function blocksOf(s: Statement): readonly Block[] {
  if (s.kind === "if") return [s.then, s.otherwise];
  return s.kind === "for" || s.kind === "block" ? [s.body] : [];
}

/** Whether a block has statements of some kinds, at any depth. */
export function has(block: Block, kinds: readonly string[]): boolean {
  return block.some((s) => kinds.includes(s.kind) || blocksOf(s).some((inner) => has(inner, kinds)));
}

/** Names that an expression reads. */
export function names(e: Expression): string[] {
  switch (e.kind) {
    case "name":
      return [e.name];
    case "unary":
    case "bitcast":
      return names(e.of);
    case "binary":
      return [...names(e.left), ...names(e.right)];
    case "index":
      return [...names(e.of), ...names(e.at)];
    case "member":
      return names(e.of);
    case "call":
    case "make":
      return e.args.flatMap(names);
    case "literal":
      return [];
  }
}
