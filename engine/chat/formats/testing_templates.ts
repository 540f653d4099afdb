import type { ModelParts } from "../testing.ts";

interface PublishedConfig {
  readonly chat_template: string | { readonly name: string; readonly template: string }[];
  readonly added_tokens_decoder?: Readonly<
    Record<string, { readonly content: string; readonly special: boolean }>
  >;
}

/** Returns a published chat template with the marks of its vocabulary. */
export function published(
  { chat_template: template, added_tokens_decoder: added = {} }: PublishedConfig,
): ModelParts {
  const tokens = Object.values(added);
  const texts = (
    special: boolean,
  ) => [...new Set(tokens.filter((token) => token.special === special).map(({ content }) => content))];
  return { template: String(template), control: texts(true), userDefined: texts(false) };
}

/** Returns a template that has only the features which identify a family. */
export const shaped = (
  shape: string,
  control: readonly string[],
  userDefined: readonly string[] = [],
): ModelParts => ({
  template: "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}" +
    `{% if tools %}{{ tools | tojson }}{% endif %}{% if false %}${shape}{% endif %}[assistant]`,
  control,
  userDefined,
});

/** Returns a short template that shows calls as a family's published templates do. `calls` renders `m.tool_calls`. */
export const showing = (calls: string, userDefined: readonly string[]): ModelParts => ({
  template: "{% if tools %}[|system|]{{ tools | tojson }}[|end|]{% endif %}" +
    "{% for m in messages %}[|{{ m.role }}|]{{ m.content or '' }}" +
    `{% if m.tool_calls %}${calls}{% endif %}[|end|]{% endfor %}` +
    "{% if add_generation_prompt %}[|assistant|]{% endif %}",
  control: ["[|end|]"],
  userDefined,
});

export const EXAONE_CALLS =
  "{% if m.content %}{{ '\n' }}{% endif %}{% for c in m.tool_calls %}{% set c = c.function %}" +
  '<tool_call>{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}}</tool_call>' +
  "{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}";

export const OLMO_CALLS = "<function_calls>{% for c in m.tool_calls %}{% set ns = namespace(list=[]) %}" +
  "{% for key, value in c.function.arguments.items() %}" +
  "{% set ns.list = ns.list + [key ~ '=' ~ (value | tojson)] %}{% endfor %}" +
  "{{ c.function.name + '(' + (ns.list | join(', ')) + ')' }}{% if not loop.last %}{{ '\n' }}{% endif %}" +
  "{% endfor %}</function_calls>";

/** Returns the template text of GLM's calls. `line` precedes calls and follows names, keys and values. */
export const glmCalls = (line: string) =>
  `{% for c in m.tool_calls %}{% set c = c.function %}{{ ${JSON.stringify(line)} }}` +
  `<tool_call>{{ c.name }}${line}{% for key, value in c.arguments.items() %}<arg_key>{{ key }}</arg_key>${line}` +
  `<arg_value>{{ value if value is string else value | tojson }}</arg_value>${line}{% endfor %}</tool_call>` +
  "{% endfor %}";

export const DEEPSEEK_CALLS = "<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}{% set c = c.function %}" +
  "<｜tool▁call▁begin｜>{{ c.name }}<｜tool▁sep｜>{{ c.arguments | tojson }}<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>";

export const KIMI_CALLS =
  "<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}" +
  "<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>";

/** Template text of Cohere's calls; `showing` writes contents without their marks. */
export const COHERE_CALLS = "<|START_ACTION|>[{% for c in m.tool_calls %}\n    " +
  '{"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ c.function.name }}", "parameters": ' +
  "{{ c.function.arguments | tojson }}}{% if not loop.last %},{% endif %}{% endfor %}\n]<|END_ACTION|>" +
  "{# <|START_THINKING|> <|START_RESPONSE|> <|END_RESPONSE|> #}";

export const MINIMAX_CALLS =
  "{{ '\n' }}<minimax:tool_call>{{ '\n' }}{% for c in m.tool_calls %}{% set c = c.function %}" +
  '<invoke name="{{ c.name }}">{{ \'\n\' }}{% for key, value in c.arguments.items() %}<parameter name="{{ key }}">' +
  "{{ value if value is string else value | tojson }}</parameter>{{ '\n' }}{% endfor %}</invoke>{{ '\n' }}" +
  "{% endfor %}</minimax:tool_call>";

const M3_VALUE = "{% macro xml(value) %}{% if value is string %}{{ value }}{% elif value is mapping %}" +
  "{% for key, inner in value.items() %}]<]minimax[>[<{{ key }}>{{ xml(inner) }}]<]minimax[>[</{{ key }}>{% endfor %}" +
  "{% elif value is iterable %}{% for inner in value %}]<]minimax[>[<item>{{ xml(inner) }}]<]minimax[>[</item>" +
  "{% endfor %}{% else %}{{ value | tojson }}{% endif %}{% endmacro %}";

export const M3_CALLS = M3_VALUE +
  "]<]minimax[>[<tool_call>{{ '\n' }}{% for c in m.tool_calls %}{% set c = c.function %}" +
  ']<]minimax[>[<invoke name="{{ c.name }}">{{ xml(c.arguments) }}]<]minimax[>[</invoke>' +
  "{{ '\n' }}{% endfor %}]<]minimax[>[</tool_call>{# <mm:think> #}";

export const DSML_CALLS =
  "{{ '\n\n' }}<｜DSML｜function_calls>{{ '\n' }}{% for c in m.tool_calls %}{% set c = c.function %}" +
  "<｜DSML｜invoke name=\"{{ c.name }}\">{{ '\n' }}{% for key, value in c.arguments.items() %}" +
  "<｜DSML｜parameter name=\"{{ key }}\" string=\"{{ 'true' if value is string else 'false' }}\">" +
  "{{ value if value is string else value | tojson }}</｜DSML｜parameter>{{ '\n' }}{% endfor %}</｜DSML｜invoke>" +
  "{{ '\n' }}{% endfor %}</｜DSML｜function_calls>";
