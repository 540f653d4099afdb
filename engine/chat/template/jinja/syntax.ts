import type { Value, Work } from "./values.ts";

/** The syntax tree of a template. */

export type Expression =
  | { readonly kind: "constant"; readonly value: Value; readonly calls: false }
  | { readonly kind: "name"; readonly name: string; readonly calls: false }
  | Apply
  | {
    readonly kind: "and" | "or";
    readonly left: Expression;
    readonly right: Expression;
    readonly calls: boolean;
  }
  | {
    readonly kind: "if";
    readonly test: Expression;
    readonly then: Expression;
    readonly otherwise: Expression;
    readonly calls: boolean;
  }
  | {
    readonly kind: "compare";
    readonly first: Expression;
    readonly rest: readonly (readonly [Comparison, Expression])[];
    readonly calls: boolean;
  };

/** An expression: a function of its operands' values. `calls`: an operand may call a macro, which can pause. */
export interface Apply {
  readonly kind: "apply";
  readonly operands: readonly Expression[];
  readonly apply: (values: Value[], work: Work) => Value;
  readonly calls: boolean;
}

export type Comparison = (a: Value, b: Value, work: Work) => boolean;

export function apply(operands: readonly Expression[], apply: Apply["apply"], calls = false): Apply {
  return { kind: "apply", operands, apply, calls: calls || operands.some((operand) => operand.calls) };
}

export function constant(value: Value): Expression {
  return { kind: "constant", value, calls: false };
}

/** Target of an assignment: a name, a namespace's attribute, or several targets that share a list. */
export type Target = string | { readonly namespace: string; readonly attribute: string } | readonly Target[];

export interface Parameter {
  readonly name: string;
  readonly fallback?: Expression;
}

/**
 * Internal name of a block's text while its filters are evaluated. Templates cannot use it, because it begins with a
 * blank.
 */
export const TEXT = " text";

export type Statement =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "output"; readonly value: Expression }
  | {
    readonly kind: "if";
    readonly test: Expression;
    readonly body: readonly Statement[];
    readonly otherwise: readonly Statement[];
  }
  | Loop
  | { readonly kind: "set"; readonly target: Target; readonly value: Expression }
  | {
    readonly kind: "capture";
    /** Variable that receives the block's text; without it, the text is output. */
    readonly target?: Target;
    readonly filters: Expression;
    readonly body: readonly Statement[];
  }
  | { readonly kind: "macro"; readonly macro: MacroSyntax }
  | { readonly kind: "call"; readonly caller: MacroSyntax; readonly call: Expression }
  | {
    readonly kind: "with";
    readonly values: readonly (readonly [Target, Expression])[];
    readonly body: readonly Statement[];
  }
  | { readonly kind: "break" | "continue" };

export interface Loop {
  readonly kind: "for";
  readonly target: Target;
  readonly items: Expression;
  readonly test: Expression | undefined;
  readonly recursive: boolean;
  readonly body: readonly Statement[];
  readonly otherwise: readonly Statement[];
}

export interface MacroSyntax {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  readonly body: readonly Statement[];
}

/** Name under which a macro gets the body of a `call` block. */
export const CALLER = "caller";
/**
 * Internal name of a `call` block's body while the call is evaluated. Templates cannot use it, because it begins with a
 * blank.
 */
export const BODY = " body";
