// Lists what the page lacks of WCAG 2.2 AA: contrast of texts (1.4.3) and of marks
// (1.4.11), names of controls (4.1.2), size of targets (2.5.8).
(() => {
  const problems = [];
  const parse = (text) => text.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const background = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length < 4 || color[3] > 0.99) return color;
    }
    return [255, 255, 255];
  };
  for (const node of document.body.querySelectorAll("*")) {
    const text = [...node.childNodes].filter((n) => n.nodeType === 3 && n.data.trim()).map((n) => n.data).join("");
    if (!text || !node.checkVisibility() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(node.tagName) || node.disabled) continue;
    const style = getComputedStyle(node);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const ratio = contrast(parse(style.color), background(node));
    if (ratio < least) problems.push(`contrast ${ratio.toFixed(2)} of ${JSON.stringify(text.slice(0, 40))} (${node.className || node.tagName})`);
  }
  const probe = document.body.appendChild(document.createElement("i"));
  const value = (name) => {
    probe.style.color = `var(${name})`;
    return parse(getComputedStyle(probe).color);
  };
  for (const [name, least] of Object.entries({ "--muted": 4.5, "--done": 3, "--running": 3, "--failed": 3, "--hot": 3, "--memory": 3, "--power": 3, "--good": 3 })) {
    const ratio = contrast(value(name), value("--card"));
    if (ratio < least) problems.push(`contrast ${ratio.toFixed(2)} of ${name} in charts`);
  }
  probe.remove();
  for (const node of document.querySelectorAll("button, a[href], summary, [tabindex='0'], progress")) {
    if (!node.checkVisibility()) continue;
    const name = node.getAttribute("aria-label") || node.textContent.trim() || node.title;
    if (!name) problems.push(`no name: ${node.outerHTML.slice(0, 80)}`);
    const box = node.getBoundingClientRect();
    const inline = getComputedStyle(node).display === "inline";
    if (!inline && node.tagName !== "PROGRESS" && (box.width < 24 || box.height < 24)) problems.push(`${name}: target of ${box.width} x ${box.height} pixels`);
  }
  if (document.querySelectorAll("h1").length !== 1) problems.push("not exactly one h1");
  return problems;
})()
