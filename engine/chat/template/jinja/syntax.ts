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

/** A function of the values of all its operands. `calls`: an operand may be a macro's call, which can pause. */
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

/** What an assignment sets: a name, a namespace's attribute, or several targets from one list. */
export type Target = string | { readonly namespace: string; readonly attribute: string } | readonly Target[];

export interface Parameter {
  readonly name: string;
  readonly fallback?: Expression;
}

/**
 * The name of a block's text where its filters are evaluated. No template can use this name, because it begins with a
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
    /** Where the text goes: to the output without a target. */
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

/** The name under which a macro gets the body of a `call` block. */
export const CALLER = "caller";
/** The name of that body where the call is evaluated. No template can use this name, because it begins with a blank. */
export const BODY = " body";
