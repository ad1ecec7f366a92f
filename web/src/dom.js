// Creating and updating elements. Text from jobs is only ever set as text, never as HTML.

// el creates an element: el("p", {class: "muted"}, "text", child, …).
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null && child !== false));
  return node;
}

// setText changes a node's text only if it differs, so that screen readers and
// selections are not disturbed once a second.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

// keyed keeps one child of parent per item: make(item) creates it, update(node, item)
// refreshes it, and children of vanished items are removed.
export function keyed(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, i) => {
    const name = String(key(item));
    let node = known.get(name);
    known.delete(name);
    if (!node) {
      node = make(item);
      node.dataset.key = name;
    }
    if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] ?? null);
    update(node, item);
  });
  for (const node of known.values()) {
    node.dispatchEvent(new Event("removed"));
    node.remove();
  }
}
