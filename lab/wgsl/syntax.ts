/** The part of WGSL that this backend's kernels are written in, as a tree. */

export type Type =
  | { readonly kind: "scalar"; readonly of: Scalar }
  | { readonly kind: "vector"; readonly of: Scalar; readonly size: number }
  | { readonly kind: "array"; readonly of: Type; readonly length?: Expression }
  | { readonly kind: "atomic"; readonly of: Type }
  | { readonly kind: "named"; readonly name: string };

export type Scalar = "f32" | "f16" | "u32" | "i32" | "bool";

export type Expression =
  /** `of` is absent for a literal without a suffix, which takes the type of what it stands beside. */
  | { readonly kind: "literal"; readonly value: number; readonly of?: Scalar; readonly float: boolean }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "unary"; readonly op: string; readonly of: Expression }
  | { readonly kind: "binary"; readonly op: string; readonly left: Expression; readonly right: Expression }
  | { readonly kind: "index"; readonly of: Expression; readonly at: Expression }
  | { readonly kind: "member"; readonly of: Expression; readonly name: string }
  | { readonly kind: "call"; readonly name: string; readonly args: readonly Expression[] }
  | { readonly kind: "make"; readonly type: Type; readonly args: readonly Expression[] }
  | { readonly kind: "bitcast"; readonly type: Type; readonly of: Expression };

export type Statement =
  | { readonly kind: "let"; readonly name: string; readonly type?: Type; readonly value?: Expression }
  /** `op` is empty, or the operator of `+=` and the like. */
  | { readonly kind: "assign"; readonly to: Expression; readonly op: string; readonly value: Expression }
  | { readonly kind: "call"; readonly call: Expression }
  | { readonly kind: "if"; readonly test: Expression; readonly then: Block; readonly otherwise: Block }
  | {
    readonly kind: "for";
    readonly first?: Statement;
    readonly test: Expression;
    readonly next?: Statement;
    readonly body: Block;
  }
  | { readonly kind: "return"; readonly value?: Expression }
  | { readonly kind: "break" }
  | { readonly kind: "continue" }
  | { readonly kind: "block"; readonly body: Block };

export type Block = readonly Statement[];

export interface Variable {
  readonly name: string;
  readonly space: "uniform" | "storage" | "workgroup" | "private";
  readonly type: Type;
  readonly binding?: number;
}

export interface Parameter {
  readonly name: string;
  readonly type: Type;
  readonly builtin?: string;
}

export interface FunctionText {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  readonly returns?: Type;
  readonly body: Block;
  /** Lanes of a workgroup along x; of an entry point only. */
  readonly lanes?: Expression;
}

export interface Module {
  readonly variables: ReadonlyMap<string, Variable>;
  readonly functions: ReadonlyMap<string, FunctionText>;
  readonly structs: ReadonlyMap<string, ReadonlyMap<string, Type>>;
  /** Constants, and overrides with what they are by default. */
  readonly constants: ReadonlyMap<string, Expression>;
}
