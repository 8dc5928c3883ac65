"use strict";
// Charts as SVG, drawn at the width they have, so that text stays readable on a phone.

const Charts = (() => {
  const NAMESPACE = "http://www.w3.org/2000/svg";

  function node(name, attributes = {}, text = null) {
    const made = document.createElementNS(NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    return made;
  }

  // Shapes tell series apart without their colours.
  function mark(shape, x, y, size, classes, title) {
    const s = size;
    const made = {
      circle: () => node("circle", { cx: x, cy: y, r: s }),
      square: () => node("rect", { x: x - s, y: y - s, width: 2 * s, height: 2 * s }),
      diamond: () => node("path", { d: `M${x} ${y - 1.3 * s}L${x + 1.3 * s} ${y}L${x} ${y + 1.3 * s}L${x - 1.3 * s} ${y}Z` }),
      triangle: () => node("path", { d: `M${x} ${y - 1.2 * s}L${x + 1.2 * s} ${y + s}L${x - 1.2 * s} ${y + s}Z` }),
      cross: () => node("path", { d: `M${x - s} ${y - s}L${x + s} ${y + s}M${x - s} ${y + s}L${x + s} ${y - s}` }),
    }[shape]();
    made.setAttribute("class", classes);
    made.setAttribute("stroke-width", "2");
    if (title) made.append(node("title", {}, title));
    return made;
  }

  function ticks(low, high, wanted = 5) {
    const span = high - low || 1;
    const rough = span / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + 1e-9 * span; value += step) found.push(value);
    return found;
  }

  function range(values, floor = -Infinity, ceiling = Infinity) {
    let low = Math.min(...values), high = Math.max(...values);
    const room = Math.max(0.06 * (high - low), 0.005 * Math.max(Math.abs(high), 1e-9));
    low = Math.max(floor, low - room);
    high = Math.min(ceiling, high + room);
    return high > low ? [low, high] : [low - 0.5, high + 0.5];
  }

  const percent = (value) => `${Number((100 * value).toFixed(1))}%`;
  const plain = (value) => `${Number(value.toPrecision(4))}`;

  // Draw into a place now and whenever its width changes.
  function figure(place, label, draw) {
    place.classList.add("figure");
    const redraw = () => {
      const width = Math.max(240, Math.floor(place.clientWidth || 640));
      const svg = draw(width);
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", label);
      const old = place.querySelector(":scope > svg");
      if (old) old.replaceWith(svg); else place.prepend(svg);
    };
    redraw();
    if (place.observed !== undefined) place.observed.disconnect();
    let last = place.clientWidth;
    place.observed = new ResizeObserver(() => {
      if (place.clientWidth !== last) { last = place.clientWidth; redraw(); }
    });
    place.observed.observe(place);
  }

  function legend(place, series) {
    const list = document.createElement("div");
    list.className = "legend";
    for (const one of series) {
      const entry = document.createElement("span");
      const svg = node("svg", { width: 18, height: 14, viewBox: "0 0 18 14", "aria-hidden": "true" });
      svg.append(one.swatch ? node("rect", { x: 1, y: 2, width: 16, height: 10, class: `${one.swatch} ${one.stroke ?? ""}` })
        : mark(one.shape, 9, 7, 4.5, `${one.hollow ? "hollow" : one.fill} ${one.stroke}`));
      entry.append(svg, one.name);
      list.append(entry);
    }
    place.querySelector(":scope > .legend")?.remove();
    place.append(list);
  }

  function axes(svg, box, x, y, settings) {
    const show = settings.format ?? percent;
    for (const value of ticks(...x.range, box.width < 330 ? 5 : 6)) {
      svg.append(node("line", { x1: x(value), x2: x(value), y1: box.top, y2: box.top + box.height, class: "grid" }),
        node("text", { x: x(value), y: box.top + box.height + 16, "text-anchor": "middle", class: "soft" }, show(value)));
    }
    if (y) for (const value of ticks(...y.range)) {
      svg.append(node("line", { x1: box.left, x2: box.left + box.width, y1: y(value), y2: y(value), class: "grid" }),
        node("text", { x: box.left - 6, y: y(value) + 4, "text-anchor": "end", class: "soft" }, show(value)));
    }
    svg.append(node("text", { x: box.left + box.width / 2, y: box.top + box.height + 34, "text-anchor": "middle" }, settings.xLabel ?? ""));
    if (settings.yLabel) svg.append(node("text", { x: 4, y: 13 }, settings.yLabel));
  }

  function scale(low, high, from, to) {
    const map = (value) => from + ((value - low) / (high - low)) * (to - from);
    map.range = [low, high];
    return map;
  }

  // series: {name, shape, stroke, fill, hollow, line, points: [{x, y, title, label}]}
  function scatter(place, settings) {
    const all = settings.series.flatMap((one) => one.points);
    figure(place, settings.label, (width) => {
      const height = Math.round(Math.min(460, Math.max(260, 0.72 * width)));
      const box = { left: 48, top: 34, width: width - 70, height: height - 74 };
      const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, height });
      if (!all.length) return svg;
      const x = scale(...range(all.map((p) => p.x), settings.floor, settings.ceiling), box.left, box.left + box.width);
      const y = scale(...range(all.map((p) => p.y), settings.floor, settings.ceiling), box.top + box.height, box.top);
      axes(svg, box, x, y, settings);
      for (const one of settings.series) {
        if (one.line) {
          const path = one.points.map((p, i) => `${i ? "L" : "M"}${x(p.x)} ${y(p.y)}`).join("");
          svg.append(node("path", { d: path, class: `series ${one.stroke}` }));
        }
        for (const p of one.points) {
          svg.append(mark(one.shape, x(p.x), y(p.y), one.size ?? 4.5, `${one.hollow ? "hollow" : one.fill} ${one.stroke}`, p.title));
          if (p.label) {
            const right = x(p.x) > box.left + 0.6 * box.width;
            svg.append(node("text", { x: x(p.x) + (right ? -9 : 9), y: y(p.y) - 7, "text-anchor": right ? "end" : "start", class: "halo" }, p.label));
          }
        }
      }
      return svg;
    });
    legend(place, settings.series.filter((one) => one.name));
  }

  // Room for the names of rows, up to a part of the width; longer ones are cut, and shown whole on hovering.
  const LETTER = 6.7;
  const margin = (rows, width) => Math.min(0.46 * width, 14 + LETTER * Math.max(...rows.map((row) => row.length)));

  function rowName(row, left, y) {
    const most = Math.floor((left - 12) / LETTER);
    const made = node("text", { x: left - 8, y, "text-anchor": "end" }, row.length > most ? `${row.slice(0, most - 1)}…` : row);
    made.append(node("title", {}, row));
    return made;
  }

  // A row a name, with marks of every series along it.
  function dots(place, settings) {
    const all = settings.series.flatMap((one) => one.values);
    figure(place, settings.label, (width) => {
      const left = margin(settings.rows, width), step = 30;
      const height = step * settings.rows.length + 62;
      const box = { left, top: 10, width: width - left - 22, height: step * settings.rows.length };
      const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, height });
      const x = scale(...range(all, settings.floor, settings.ceiling), box.left, box.left + box.width);
      axes(svg, box, x, null, settings);
      settings.rows.forEach((row, k) => {
        const middle = box.top + step * (k + 0.5);
        svg.append(rowName(row, left, middle + 4));
        for (const one of settings.series) {
          svg.append(mark(one.shape, x(one.values[k]), middle, 5, `${one.hollow ? "hollow" : one.fill} ${one.stroke}`, `${row}, ${one.name}: ${percent(one.values[k])}`));
        }
      });
      return svg;
    });
    legend(place, settings.series);
  }

  // Horizontal bars: stacked parts of a row, or one beneath the other.
  function bars(place, settings) {
    const stacked = settings.stacked ?? false;
    const show = settings.format ?? plain;
    const totals = settings.rows.map((_, k) => settings.series.map((one) => one.values[k]));
    const largest = Math.max(...totals.map((row) => (stacked ? row.reduce((a, b) => a + b, 0) : Math.max(...row))), 1e-12);
    figure(place, settings.label, (width) => {
      const left = margin(settings.rows, width), thick = stacked ? 18 : 13;
      const step = (stacked ? thick : thick * settings.series.length) + 12;
      const height = step * settings.rows.length + 56;
      const box = { left, top: 6, width: width - left - 52, height: step * settings.rows.length };
      const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, height });
      const x = scale(0, settings.largest ?? largest, box.left, box.left + box.width);
      axes(svg, box, x, null, { format: show, ...settings });
      settings.rows.forEach((row, k) => {
        const top = box.top + step * k + 6;
        svg.append(rowName(row, left, top + (step - 12) / 2 + 4));
        let begin = 0;
        settings.series.forEach((one, s) => {
          const value = one.values[k];
          const y = stacked ? top : top + s * thick;
          const bar = node("rect", { x: x(begin), y, width: Math.max(0, x(begin + value) - x(begin)), height: thick - 2, class: `${one.swatch} ${one.stroke ?? ""}` });
          bar.append(node("title", {}, `${row}, ${one.name}: ${show(value)}`));
          svg.append(bar);
          if (stacked) begin += value;
          else svg.append(node("text", { x: x(value) + 5, y: y + thick - 4 }, show(value)));
        });
        if (stacked) svg.append(node("text", { x: x(begin) + 5, y: top + thick - 5 }, show(begin)));
      });
      return svg;
    });
    if (settings.series.length > 1) legend(place, settings.series);
  }

  // A probability with its lower and upper bound, small enough for a table's cell.
  function interval(lower, value, upper, label) {
    const width = 130, height = 22;
    const svg = node("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    const x = (share) => 5 + share * (width - 10);
    svg.append(node("line", { x1: x(0), x2: x(1), y1: 11, y2: 11, class: "axis" }),
      node("line", { x1: x(0.5), x2: x(0.5), y1: 4, y2: 18, class: "grid" }),
      node("rect", { x: x(lower), y: 6, width: Math.max(1.5, x(upper) - x(lower)), height: 10, class: "band c0" }),
      mark("diamond", x(value), 11, 4, "fink ink", label));
    return svg;
  }

  return { scatter, dots, bars, interval, percent, plain };
})();
