/** A lint rule: functions have at most 70 lines, so that one can be read without scrolling. Tests may be longer. */
const MAX_LINES = 70;

const plugin: Deno.lint.Plugin = {
  name: "compy",
  rules: {
    "function-length": {
      create(context) {
        if (/_test\.ts$|[\\/](tests|testing|lab)[\\/]/.test(context.filename)) return {};
        const check = (node: Deno.lint.Node) => {
          const lines = context.sourceCode.text.slice(...node.range).split("\n").length;
          if (lines <= MAX_LINES) return;
          context.report({
            node,
            message: `This function has ${lines} lines: at most ${MAX_LINES} are allowed`,
          });
        };
        return { FunctionDeclaration: check, FunctionExpression: check, ArrowFunctionExpression: check };
      },
    },
  },
};

export default plugin;
