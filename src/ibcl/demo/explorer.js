"use strict";
// Makes a model for the preference that the sliders show, as ibcl's routed evidence does, and tests
// it. No data but the test images is here, and nothing is trained.

function decode(text, type) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new type(bytes.buffer);
}

function startExplorer(data) {
  const count = data.tasks.length;
  const images = data.images.map((text) => decode(text, Uint8Array));
  const odd = data.odd.map((text) => decode(text, Uint8Array));
  const [scores, heads, vertices] = [data.scores, data.heads, data.vertices]
    .map((parts) => parts.map((text) => decode(text, Float32Array)));

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

  function evaluate(weights) {
    const begin = performance.now();
    const wrong = odd.map((labels, task) => {
      const found = [];
      for (let n = 0; n < labels.length; n++) {
        const p = probability(weights, task, n);
        if ((p > 0.5) !== (labels[n] === 1)) found.push({ n, p });
      }
      return found;
    });
    const milliseconds = performance.now() - begin;
    const accuracy = wrong.map((list, task) => 1 - list.length / odd[task].length);
    const weighted = accuracy.reduce((sum, value, task) => sum + weights[task] * value, 0);
    return { milliseconds, wrong, accuracy, weighted };
  }

  const percent = (value) => `${(100 * value).toFixed(1)}%`;
  const byId = (name) => document.getElementById(name);

  function drawWrong(wrong) {
    const pictures = wrong.flatMap((list, task) => list.slice(0, 6).map(({ n, p }) => {
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
      caption.textContent = `${data.tasks[task]}: ${truth}, taken for ${guess} (${percent(p > 0.5 ? p : 1 - p)})`;
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", caption.textContent);
      figure.append(canvas, caption);
      return figure;
    }));
    if (pictures.length) byId("wrong").replaceChildren(...pictures);
    else byId("wrong").textContent = "none";
  }

  const sliders = new Sliders(byId("sliders"), update);

  function update() {
    const result = evaluate(sliders.weights);
    sliders.showScores(Object.fromEntries(data.tasks.map((task, k) => [task, result.accuracy[k]])), percent);
    byId("summary").textContent = `A model is ${count} numbers here, made with 0 training steps; testing it took ` +
      `${result.milliseconds.toFixed(0)} ms in your browser. Weighted by your preference, it is right on ` +
      `${percent(result.weighted)} of the test images.`;
    drawWrong(result.wrong);
  }

  sliders.setTasks(data.tasks);
  sliders.offer(byId("presets"));
  update();
  return evaluate;
}

function drawFigures(figures) {
  for (const [name, { kind, ...settings }] of Object.entries(figures)) {
    const format = settings.percent ? Charts.percent : Charts.plain;
    Charts[kind](document.getElementById(`figure-${name}`), { ...settings, format });
  }
}
