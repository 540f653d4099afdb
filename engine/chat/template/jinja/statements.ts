import { ExpressionParser } from "./expressions.ts";
import { lex } from "./lexer.ts";
import {
  CALLER,
  type Expression,
  type Loop,
  type MacroSyntax,
  type Parameter,
  type Statement,
  type Target,
  TEXT,
} from "./syntax.ts";

/** Parses a template. Throws for invalid syntax. */
export function parse(source: string): readonly Statement[] {
  return new StatementParser(lex(source)).template();
}

class StatementParser extends ExpressionParser {
  template(): Statement[] {
    const body = this.#body([]);
    if (this.token.type !== "end") throw this.error("unexpected tag");
    return body;
  }

  /** Parses statements up to a tag with one of these names. The caller parses that name. */
  #body(until: readonly string[]): Statement[] {
    const body: Statement[] = [];
    for (;;) {
      const { type, text } = this.token;
      if (type === "end") {
        if (until.length > 0) throw this.error(`${until.at(-1)} is missing`);
        return body;
      }
      this.at++;
      if (type === "data") body.push({ kind: "text", text });
      else if (type === "{{") {
        body.push({ kind: "output", value: this.tuple() });
        this.#close("}}");
      } else {
        if (this.is(...until)) return body;
        body.push(...this.#statement(this.name()));
      }
    }
  }

  #close(type: "}}" | "%}"): void {
    if (this.token.type !== type) throw this.error(`${type} is missing`);
    this.at++;
  }

  /** Parses the rest of an opening tag, the body and the closing tag. */
  #block(end: string): Statement[] {
    this.#close("%}");
    const body = this.#body([end]);
    this.name();
    if (end === "endblock" && this.token.type === "name") this.at++;
    this.#close("%}");
    return body;
  }

  #statement(name: string): Statement[] {
    switch (name) {
      case "if":
        return [this.#if()];
      case "for":
        return [this.#for()];
      case "set":
        return [this.#set()];
      case "macro":
        return [{ kind: "macro", macro: this.#macro(this.name(), "endmacro") }];
      case "call":
        return [this.#callBlock()];
      case "filter": {
        const filters = this.filter(TEXT_NAME, true);
        return [{ kind: "capture", filters, body: this.#block("endfilter") }];
      }
      case "with":
        return [this.#with()];
      case "break":
      case "continue":
        this.#close("%}");
        return [{ kind: name }];
      case "generation": // marks answers for training, and opens a separate scope
        return [{ kind: "capture", filters: TEXT_NAME, body: this.#block("endgeneration") }];
      case "block":
        this.name();
        return this.#block("endblock");
      default:
        throw this.error(`there is no statement named ${JSON.stringify(name)}`);
    }
  }

  #if(): Statement {
    const test = this.tuple();
    this.#close("%}");
    const body = this.#body(["elif", "else", "endif"]);
    const next = this.name();
    if (next === "elif") return { kind: "if", test, body, otherwise: [this.#if()] };
    this.#close("%}");
    if (next === "endif") return { kind: "if", test, body, otherwise: [] };
    const otherwise = this.#body(["endif"]);
    this.name();
    this.#close("%}");
    return { kind: "if", test, body, otherwise };
  }

  #for(): Loop {
    const target = this.#target(false);
    this.expect("in");
    const items = this.tuple(true);
    const test = this.skip("if") ? this.expression() : undefined;
    const recursive = this.skip("recursive");
    this.#close("%}");
    const body = this.#body(["else", "endfor"]);
    let otherwise: Statement[] = [];
    if (this.name() === "else") {
      this.#close("%}");
      otherwise = this.#body(["endfor"]);
      this.name();
    }
    this.#close("%}");
    return { kind: "for", target, items, test, recursive, body, otherwise };
  }

  #set(): Statement {
    const target = this.#target(true);
    if (this.skip("=")) {
      const value = this.tuple();
      this.#close("%}");
      return { kind: "set", target, value };
    }
    const filters = this.filter(TEXT_NAME);
    return { kind: "capture", target, filters, body: this.#block("endset") };
  }

  /** Parses assignment targets between commas. Only `set` may set an attribute. */
  #target(attributes: boolean): Target {
    const targets: Target[] = [];
    do {
      if (this.is("in", "=") || this.token.type === "%}") break;
      if (this.skip("(")) {
        targets.push(this.#target(attributes));
        this.expect(")");
        continue;
      }
      const name = this.name();
      targets.push(attributes && this.skip(".") ? { namespace: name, attribute: this.name() } : name);
      if (!this.is(",")) return targets.length === 1 ? targets[0] : targets;
    } while (this.skip(","));
    return targets;
  }

  #macro(name: string, end: string): MacroSyntax {
    const parameters = this.is("(") ? this.#parameters() : [];
    return { name, parameters, body: this.#block(end) };
  }

  #parameters(): Parameter[] {
    this.expect("(");
    const parameters: Parameter[] = [];
    while (!this.skip(")")) {
      const name = this.name();
      parameters.push({ name, fallback: this.skip("=") ? this.expression() : undefined });
      if (!this.is(")")) this.expect(",");
    }
    return parameters;
  }

  #callBlock(): Statement {
    const parameters = this.is("(") ? this.#parameters() : [];
    this.caller = true;
    const call = this.expression();
    if (this.caller) throw this.error("a call block needs a call");
    return { kind: "call", call, caller: { name: CALLER, parameters, body: this.#block("endcall") } };
  }

  #with(): Statement {
    const values: [Target, Expression][] = [];
    while (this.token.type !== "%}") {
      const target = this.#target(false);
      this.expect("=");
      values.push([target, this.expression()]);
      if (!this.skip(",")) break;
    }
    return { kind: "with", values, body: this.#block("endwith") };
  }
}

const TEXT_NAME: Expression = { kind: "name", name: TEXT, calls: false };
