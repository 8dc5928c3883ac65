"use strict";
// Answers without a service: makes a model for a preference as ibcl's routed evidence does, and tests
// it. No data but the test images is here, and nothing is trained.

function decode(text, type) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new type(bytes.buffer);
}

const FRONT_STEPS = 20;

function embedded(data) {
  const count = data.tasks.length;
  const images = data.images.map((text) => decode(text, Uint8Array));
  const odd = data.odd.map((text) => decode(text, Uint8Array));
  const [scores, heads, vertices] = [data.scores, data.heads, data.vertices]
    .map((parts) => parts.map((text) => decode(text, Float32Array)));
  const version = "embedded";

  // The probability that an image is odd: Σ_k w_k e_k p_k / Σ_k w_k e_k, shifted for safety.
  function probability(weights, task, n) {
    const active = weights.map((_, k) => k).filter((k) => weights[k] > 0);
    if (active.length === 1) return vertices[task][n * count + active[0]];
    const logits = active.map((k) => scores[task][n * count + k] + Math.log(weights[k]));
    const largest = Math.max(...logits);
    let top = 0, bottom = 0;
    active.forEach((k, i) => {
      const share = Math.exp(logits[i] - largest);
      top += share * heads[task][n * count + k];
      bottom += share;
    });
    return top / bottom;
  }

  function wrongImages(weights, task) {
    const found = [];
    for (let n = 0; n < odd[task].length; n++) {
      const p = probability(weights, task, n);
      if ((p > 0.5) !== (odd[task][n] === 1)) found.push({ n, p });
    }
    return found;
  }

  const accuracy = (weights, task) => 1 - wrongImages(weights, task).length / odd[task].length;
  const byTask = (score) => Object.fromEntries(data.tasks.map((task, k) => [task, score(k)]));

  function drawWrong(weights) {
    const pictures = data.tasks.flatMap((name, task) => wrongImages(weights, task).slice(0, 6).map(({ n, p }) => {
      const figure = document.createElement("figure");
      const canvas = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
      const context = canvas.getContext("2d");
      const picture = context.createImageData(8, 8);
      for (let pixel = 0; pixel < 64; pixel++) {
        const grey = 255 - (255 * images[task][64 * n + pixel]) / data.levels;
        picture.data.set([grey, grey, grey, 255], 4 * pixel);
      }
      context.putImageData(picture, 0, 0);
      const truth = odd[task][n] === 1 ? "odd" : "even", guess = p > 0.5 ? "odd" : "even";
      const caption = document.createElement("figcaption");
      caption.textContent = `${name}: ${truth}, taken for ${guess} (${aligned(p > 0.5 ? p : 1 - p)})`;
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", caption.textContent);
      figure.append(canvas, caption);
      return figure;
    }));
    byId("wrong").replaceChildren(...(pictures.length ? pictures : ["none"]));
  }

  return {
    overview: () => ({ version, versions: [{ version, tasks: data.tasks }], tasks: data.tasks,
      classes: ["even", "odd"], validation: byTask((k) => odd[k].length) }),
    measure(preference) {
      const weights = data.tasks.map((task) => preference[task]);
      const found = byTask((k) => accuracy(weights, k));
      const weighted = data.tasks.reduce((sum, task, k) => sum + weights[k] * found[task], 0);
      return { scores: found, weighted };
    },
    front(x, y) {
      const [a, b] = [data.tasks.indexOf(x), data.tasks.indexOf(y)];
      const between = Array.from({ length: FRONT_STEPS + 1 }, (_, step) => data.tasks.map((_, k) =>
        (k === a ? 1 - step / FRONT_STEPS : 0) + (k === b ? step / FRONT_STEPS : 0)));
      return { version, tasks: data.tasks,
        between: byTask((k) => between.map((weights) => accuracy(weights, k))),
        vertices: byTask((k) => data.tasks.map((_, j) => accuracy(Simplex.vertex(count, j), k))) };
    },
    remark: (milliseconds) => "Weighted by this preference. This model is " +
      `${count} numbers, made with 0 training steps; testing it took ${milliseconds.toFixed(0)} ms in your browser.`,
    also: drawWrong,
  };
}

function drawFigures(figures) {
  for (const [name, { kind, ...settings }] of Object.entries(figures)) {
    const format = settings.percent ? Charts.percent : Charts.plain;
    Charts[kind](document.getElementById(`figure-${name}`), { ...settings, format });
  }
}
