// Elements from values, and the change from one tree to the next. Text is only ever text: nothing here parses HTML.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "rect", "title"]);

// h("a", {href: "#/x", "data-key": "x"}, "text", child, ...): attributes that are null or false are left out.
function h(name, attributes, ...children) {
  const element = DRAWN.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(String(child)));
  }
  return element;
}

// Characters that hide, or turn the text around them, would let a name look like another one.
const visible = (text) => text.replace(/[^\P{C}\n\t]|[\u2028\u2029]/gu, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);
const alike = (one, other) => one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

// Makes `from` like `to`, and keeps what is the same: focus, selection and scrolling stay where they are.
function morph(from, to) {
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  morphChildren(from, [...to.childNodes]);
}

// A node that is moved loses the focus, so it is given back.
function place(parent, node, next) {
  const held = node.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(node, next);
  held?.focus({ preventScroll: true });
}

function morphChildren(parent, wanted) {
  const kept = new Set(wanted.map(keyOf));
  for (const child of [...parent.children]) if (keyOf(child) && !kept.has(keyOf(child))) child.remove();
  const keyed = new Map([...parent.children].filter(keyOf).map((child) => [keyOf(child), child]));
  let next = parent.firstChild;
  for (const node of wanted) {
    const known = keyed.get(keyOf(node));
    if (known && alike(known, node)) {
      if (known === next) next = next.nextSibling;
      else place(parent, known, next);
      morph(known, node);
    } else if (next && !keyOf(next) && !keyOf(node) && alike(next, node)) {
      const here = next;
      next = next.nextSibling;
      morph(here, node);
    } else {
      parent.insertBefore(node, next);
    }
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}
