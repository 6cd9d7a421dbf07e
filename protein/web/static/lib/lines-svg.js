// The chart of lib/lines.js as SVG: the same axes and curves, from uPlot's own scales.

/** Returns the SVG text of a drawn chart. */
export function svgOfLines(plot, { series, x, y, name, steps }, theme) {
  const { width, height, bbox } = plot;
  const ratio = devicePixelRatio;
  const box = { left: bbox.left / ratio, top: bbox.top / ratio, width: bbox.width / ratio, height: bbox.height / ratio };
  const font = escaped(getComputedStyle(document.body).fontFamily);
  const right = box.left + box.width;
  const bottom = box.top + box.height;
  const at = (value, scale) => plot.valToPos(value, scale) + (scale === "x" ? box.left : box.top);
  const parts = [];
  const ticks = (index) => {
    const axis = plot.axes[index];
    return (axis._splits || []).map((value, i) => [value, axis._values?.[i] ?? ""]);
  };
  for (const [value, text] of ticks(0)) {
    const place = round(at(value, "x"));
    if (place < box.left - 1 || place > right + 1) continue;
    parts.push(`<path d="M${place} ${box.top}V${bottom}" stroke="${theme.grid}"/>`);
    parts.push(`<text x="${place}" y="${bottom + 18}" text-anchor="middle" fill="${theme.muted}">${escaped(text)}</text>`);
  }
  for (const [value, text] of ticks(1)) {
    const place = round(at(value, "y"));
    if (place < box.top - 1 || place > bottom + 1) continue;
    parts.push(`<path d="M${box.left} ${place}H${right}" stroke="${theme.grid}"/>`);
    parts.push(`<text x="${box.left - 9}" y="${place + 4}" text-anchor="end" fill="${theme.muted}">${escaped(text)}</text>`);
  }
  parts.push(`<path d="M${box.left} ${box.top}V${bottom}H${right}" fill="none" stroke="${theme.line}"/>`);
  parts.push(`<text x="${box.left + box.width / 2}" y="${height - 4}" text-anchor="middle" fill="${theme.muted}">${escaped(x.label || "")}</text>`);
  parts.push(`<text transform="translate(13 ${box.top + box.height / 2}) rotate(-90)" text-anchor="middle" fill="${theme.muted}">${escaped(y.label || "")}</text>`);
  parts.push(`<clipPath id="room"><rect x="${box.left}" y="${box.top}" width="${box.width}" height="${box.height}"/></clipPath><g clip-path="url(#room)">`);
  series.forEach((one, k) => {
    const [xs, ys] = plot.data[k + 1];
    if (one.band) {
      const edge = (values) => values.flatMap((value, i) => [...(steps && i ? [values[i - 1]] : []), value].map((height) => `${round(at(one.x[i], "x"))} ${round(at(height, "y"))}`)).filter((text) => !/NaN|Infinity/.test(text));
      parts.push(`<path d="M${[...edge(one.band.low), ...edge(one.band.high).reverse()].join("L")}Z" fill="${one.color}" fill-opacity="0.14"/>`);
    }
    let path = "";
    let drawing = false;
    for (let i = 0; i < xs.length; i++) {
      if (xs[i] === null || ys[i] === null) { drawing = false; continue; }
      if (drawing && steps) path += `H${round(at(xs[i], "x"))}`;
      path += `${drawing ? "L" : "M"}${round(at(xs[i], "x"))} ${round(at(ys[i], "y"))}`;
      if (!drawing && (ys[i + 1] ?? null) === null) path += "m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0"; // a point
      drawing = true;
    }
    if (path) parts.push(`<path d="${path}" fill="none" stroke="${one.color}" stroke-width="${one.width ?? 1.4}"><title>${escaped(one.label)}</title></path>`);
  });
  parts.push("</g>");
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${font}" font-size="12">`
    + `<title>${escaped(name)}</title><rect width="100%" height="100%" fill="${theme.surface}"/>${parts.join("")}</svg>\n`;
}

function round(value) {
  return Math.round(value * 100) / 100;
}
function escaped(text) {
  return String(text).replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);
}
