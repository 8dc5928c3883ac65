"use strict";
// Makes a model for the preference that the sliders show, as ibcl.pooling's evidence rule does, and
// tests it. No data but the test images is here, and nothing is trained.

function decode(text, type) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new type(bytes.buffer);
}

function startExplorer(data) {
  const dimension = data.dimension;
  const width = dimension - 1;
  const precisions = data.precisions.map((text) => decode(text, Float32Array));
  const linears = data.linears.map((text) => decode(text, Float32Array));
  const images = data.images.map((text) => decode(text, Uint8Array));
  const odd = data.odd.map((text) => decode(text, Uint8Array));
  const features = computeFeatures();
  const at = (row, column) => (row * (row + 1)) / 2 + column;

  // φ(x) = √(2/width) · relu(xW + b), with 1 appended for the head's bias.
  function computeFeatures() {
    const weights = decode(data.featureWeights, Float32Array);
    const biases = decode(data.featureBiases, Float32Array);
    const centre = decode(data.centre, Float32Array);
    const pixels = centre.length;
    return images.map((image) => {
      const count = image.length / pixels;
      const result = new Float64Array(count * dimension);
      for (let n = 0; n < count; n++) {
        const x = centre.map((c, p) => (image[n * pixels + p] / data.levels - c) / data.scale);
        for (let f = 0; f < width; f++) {
          let sum = biases[f];
          for (let p = 0; p < pixels; p++) sum += weights[f * pixels + p] * x[p];
          result[n * dimension + f] = Math.max(sum, 0) * Math.sqrt(2 / width);
        }
        result[n * dimension + width] = 1;
      }
      return result;
    });
  }

  // Precision P₀ + K Σ w_k Λ_k and its product with the mean, K Σ w_k η_k.
  function pool(weights) {
    const precision = new Float64Array(precisions[0].length);
    const linear = new Float64Array(dimension);
    weights.forEach((weight, task) => {
      const exponent = weight * weights.length;
      if (exponent === 0) return;
      for (let i = 0; i < precision.length; i++) precision[i] += exponent * precisions[task][i];
      for (let i = 0; i < dimension; i++) linear[i] += exponent * linears[task][i];
    });
    for (let i = 0; i < dimension; i++) precision[at(i, i)] += data.priorPrecision;
    return solve(precision, linear);
  }

  // Cholesky in place on the packed lower triangle, then two substitutions.
  function solve(matrix, vector) {
    for (let row = 0; row < dimension; row++) {
      for (let column = 0; column <= row; column++) {
        let sum = matrix[at(row, column)];
        const a = at(row, 0), b = at(column, 0);
        for (let k = 0; k < column; k++) sum -= matrix[a + k] * matrix[b + k];
        matrix[at(row, column)] = row === column ? Math.sqrt(sum) : sum / matrix[at(column, column)];
      }
    }
    const result = Float64Array.from(vector);
    for (let row = 0; row < dimension; row++) {
      for (let k = 0; k < row; k++) result[row] -= matrix[at(row, k)] * result[k];
      result[row] /= matrix[at(row, row)];
    }
    for (let row = dimension - 1; row >= 0; row--) {
      for (let k = row + 1; k < dimension; k++) result[row] -= matrix[at(k, row)] * result[k];
      result[row] /= matrix[at(row, row)];
    }
    return result;
  }

  function wrongImages(theta) {
    return features.map((phi, task) => {
      const wrong = [];
      for (let n = 0; n < odd[task].length; n++) {
        let output = 0;
        for (let i = 0; i < dimension; i++) output += phi[n * dimension + i] * theta[i];
        if ((output > 0) !== (odd[task][n] === 1)) wrong.push(n);
      }
      return wrong;
    });
  }

  function evaluate(weights) {
    const begin = performance.now();
    const theta = pool(weights);
    const milliseconds = performance.now() - begin;
    const wrong = wrongImages(theta);
    const accuracy = wrong.map((list, task) => 1 - list.length / odd[task].length);
    const weighted = accuracy.reduce((sum, value, task) => sum + weights[task] * value, 0);
    return { theta, milliseconds, wrong, accuracy, weighted };
  }

  const percent = (value) => `${(100 * value).toFixed(1)}%`;
  const sliders = document.getElementById("sliders");
  const inputs = data.tasks.map((name) => {
    const row = document.createElement("label");
    row.className = "slider";
    row.innerHTML = `<span>${name}</span><input type="range" min="0" max="20" value="10"
      aria-label="importance of ${name}"><output></output>
      <span class="track"><span class="bar"></span></span><output class="accuracy"></output>`;
    sliders.append(row);
    return row.querySelector("input");
  });

  function drawWrong(wrong) {
    const place = document.getElementById("wrong");
    place.replaceChildren();
    wrong.forEach((list, task) => list.slice(0, 6).forEach((n) => {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = 8;
      canvas.title = `from task ${data.tasks[task]}`;
      const context = canvas.getContext("2d");
      const picture = context.createImageData(8, 8);
      for (let p = 0; p < 64; p++) {
        const grey = 255 - (255 * images[task][64 * n + p]) / data.levels;
        picture.data.set([grey, grey, grey, 255], 4 * p);
      }
      context.putImageData(picture, 0, 0);
      place.append(canvas);
    }));
    if (!place.children.length) place.textContent = "none";
  }

  function update() {
    const raw = inputs.map((input) => Number(input.value));
    const total = raw.reduce((sum, value) => sum + value, 0);
    const summary = document.getElementById("summary");
    if (total === 0) {
      summary.textContent = "Give at least one task some weight.";
      return;
    }
    const weights = raw.map((value) => value / total);
    const result = evaluate(weights);
    inputs.forEach((input, task) => {
      const row = input.parentElement;
      row.querySelector("output").textContent = `${Math.round(100 * weights[task])}%`;
      row.querySelector(".bar").style.width = percent(result.accuracy[task]);
      row.querySelector(".accuracy").textContent = percent(result.accuracy[task]);
    });
    summary.innerHTML = `This model was made in <b>${result.milliseconds.toFixed(0)} ms</b>, in your
      browser, with <b>0</b> training steps. Weighted by your preference, it is right on
      <b>${percent(result.weighted)}</b> of the test images.`;
    drawWrong(result.wrong);
  }

  const presets = document.getElementById("presets");
  const vertices = data.tasks.map((name, task) => [`only ${name}`, data.tasks.map((_, k) => (k === task ? 20 : 0))]);
  [["all alike", data.tasks.map(() => 10)], ...vertices].forEach(([name, values]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => {
      inputs.forEach((input, task) => { input.value = values[task]; });
      update();
    });
    presets.append(button);
  });
  inputs.forEach((input) => input.addEventListener("input", update));
  update();
  return evaluate;
}
