// @ts-check

/*
 * Turns a LaTeX formula into a MathML tree of plain arrays. Strangers write formulas, so only the elements, attributes
 * and styles below reach the page, and sizes are bounded.
 */

/**
 * A MathML element: its name, attributes, styles and children. Strings are text.
 * @typedef {[string, Record<string, string>, Record<string, string>, (string | MathTree)[]]} MathTree
 * @typedef {{ type?: string, text?: string, attributes?: Record<string, unknown>, classes?: string[],
 *   style?: Record<string, unknown>, children?: TemmlNode[] }} TemmlNode
 * @typedef {{ __renderToMathMLTree: (tex: string, options: object) => TemmlNode }} Temml
 */

const MAX_CHARACTERS = 5000;
const MAX_NODES = 10_000;
/** Browsers lay out deeper trees slowly. */
const MAX_DEPTH = 100;

const TAGS = new Set(
  ("math mfrac mi mn mo mtext mspace mrow mover munder munderover msub msup msubsup mmultiscripts mprescripts none msqrt " +
    "mroot mtable mtr mtd mlabeledtr menclose mpadded mphantom mstyle merror").split(" "),
);
const ATTRIBUTES = new Set(
  ("display displaystyle scriptlevel stretchy fence form separator symmetric largeop movablelimits accent accentunder " +
    "notation width height depth lspace rspace voffset minsize maxsize mathsize mathcolor mathbackground mathvariant " +
    "linethickness columnalign rowspacing columnspacing columnlines rowlines rowspan columnspan side").split(
      " ",
    ),
);
const STYLES = new Set(
  ("display color padding paddingTop paddingRight paddingBottom paddingLeft border borderTop borderRight borderBottom " +
    "borderLeft width height left right bottom position marginLeft textAlign fontWeight math-depth mathDepth")
    .split(" "),
);
/** Excludes `url(…)` and all other functions. */
const STYLE_VALUE = /^[\w.#% -]{1,40}$/;

/** Longer distances are left out, in any unit: a formula stays on its line. */
const MAX_LENGTH = 200;

/** What a formula cannot do: load or link anything (trust), expand macros without end, or grow beyond its line (em, pt). */
const OPTIONS = { throwOnError: true, trust: false, strict: false, maxExpand: 1000, maxSize: [20, 200] };

/**
 * Returns the formula's MathML. Throws for what is not LaTeX, and for formulas that are too large.
 * @param {Temml} temml
 * @param {string} tex
 * @param {boolean} display
 * @returns {MathTree}
 */
export function mathTree(temml, tex, display) {
  if (tex.length > MAX_CHARACTERS) throw new Error("The formula is too long");
  const root = temml.__renderToMathMLTree(tex, { ...OPTIONS, displayMode: display });
  let nodes = 0;

  /**
   * @param {TemmlNode} node
   * @param {number} depth
   * @returns {(string | MathTree)[]}
   */
  const converted = ({ type, text, attributes = {}, classes = [], style = {}, children = [] }, depth) => {
    if (depth > MAX_DEPTH || ++nodes > MAX_NODES) throw new Error("The formula is too large");
    if (text !== undefined) return [text];
    const inner = children.flatMap((child) => converted(child, depth + 1));
    // Fragments, and links to numbered formulas, become their content.
    if (type === undefined || !TAGS.has(type)) return inner;
    const names = classes.filter(Boolean).join(" ");
    const kept = only(attributes, (name) => ATTRIBUTES.has(name));
    const styles = only(style, (name, value) => STYLES.has(name) && STYLE_VALUE.test(value));
    return [[type, names === "" ? kept : { ...kept, class: names }, styles, inner]];
  };

  const [tree] = converted(root, 0);
  if (tree?.[0] !== "math") throw new Error("The formula is empty");
  return /** @type {MathTree} */ (tree);
}

/**
 * @param {Record<string, unknown>} values
 * @param {(name: string, value: string) => boolean} allowed
 * @returns {Record<string, string>}
 */
function only(values, allowed) {
  const texts = Object.entries(values).map(([name, value]) => /** @type {const} */ ([name, String(value)]));
  return Object.fromEntries(
    texts.filter(([name, value]) => allowed(name, value) && !(Math.abs(parseFloat(value)) > MAX_LENGTH)),
  );
}
