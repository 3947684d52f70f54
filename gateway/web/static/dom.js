// DOM elements. In: a tag, attributes, children. Out: an element; text is never parsed as HTML.

const SVG = new Set(["svg", "path", "rect", "circle", "line", "text", "g", "title"]);

/** attributes: `on…` are listeners; false and null leave one out. */
export function h(tag, attributes = {}, ...children) {
  const svg = SVG.has(tag);
  const element = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) {
      element.addEventListener(key.slice(2), value);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

/** Give a node these children, and leave alone what is as it was: so that focus stays. */
export function fill(parent, ...children) {
  const wanted = children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false);
  wanted.forEach((child, index) => {
    const node = child instanceof Node ? child : document.createTextNode(child);
    const there = parent.childNodes[index];
    if (there === undefined) {
      parent.append(node);
    } else if (!there.isEqualNode(node)) {
      there.replaceWith(node);
    }
  });
  while (parent.childNodes.length > wanted.length) {
    parent.lastChild.remove();
  }
}
