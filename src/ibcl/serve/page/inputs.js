"use strict";
// Single inputs: what is said of them, what the gate does with them, which preference explains them,
// and the model to take away. For sources that also have
//   predict(body)        as POST /v1/predict
//   infer(rows, labels)  as POST /v1/infer
//   model(body)          as POST /v1/model, as a blob

class Inputs {
  constructor(explorer) {
    this.explorer = explorer;
    this.source = explorer.source;
    this.chosenRow = 0;
    this.updateGate = latest(() => this.showGate());
    byId("class").addEventListener("change", () => explorer.update());
    const fault = (place, work) => () => work().catch((error) => { byId(place).textContent = error.message; });
    byId("infer").addEventListener("click", fault("inferred", () => this.inferTicked()));
    byId("infer-own").addEventListener("click", fault("inferred", () => this.inferOwn()));
    byId("download").addEventListener("click", fault("exported", () => this.download("safetensors")));
    byId("download-onnx").addEventListener("click", fault("exported", () => this.download("onnx")));
    byId("download-code").addEventListener("click", () => this.save(new Blob([this.code()], { type: "text/x-python" }), "model.py"));
    byId("copy-code").addEventListener("click", fault("exported", async () => {
      await navigator.clipboard.writeText(this.code());
      byId("exported").textContent = "Copied.";
    }));
  }

  get overview() { return this.explorer.overview; }
  get preference() { return rounded(this.explorer.first.preference()); }

  loaded(before) {
    const { columns, classes, examples } = this.overview;
    options(byId("class"), classes ?? ["value"], before ? byId("class").value : (classes ?? ["value"]).at(-1));
    this.chosenRow = Math.min(this.chosenRow, Math.max(0, examples.length - 1));
    for (const name of ["class-choice", "infer-choice"]) byId(name).hidden = !examples.length;
    byId("class-choice").hidden ||= !classes;
    for (const name of ["gate-section", "own-choice"]) byId(name).hidden = !columns.length;
    if (!before || before.columns.join() !== columns.join() || !byId("fields").children.length) this.fillFields();
  }

  async also() {
    byId("code").textContent = this.code();
    await this.showExamples();
    await this.showGate();
  }

  // Example inputs.

  async showExamples() {
    const table = byId("examples");
    const { classes, columns, examples, sets, version } = this.overview;
    byId("examples-note").textContent = examples.length
      ? `What this preference's model says${classes ? ": the mark is its probability, the band what the models of single tasks span (lower and upper probability)" : ", and between which values the models of single tasks are"}. Tick rows to find the preference behind them.`
      : "Start the service with --validation to see example inputs.";
    if (!examples.length) { table.replaceChildren(); return; }
    const rows = examples.map((example) => example.row);
    const wanted = { rows, bounds: true, uncertainty: true, version, preference: this.preference };
    if (sets) wanted.set = 0.9;
    const answer = await this.source.predict(wanted);
    const { comparing, second, versionOfSecond } = this.explorer;
    const rival = comparing ? await this.source.predict({ rows, version: versionOfSecond, preference: forVersion(second.preference(), this.explorer.tasksOf(versionOfSecond)) }) : null;
    const ticked = new Set([...table.querySelectorAll("input:checked")].map((box) => Number(box.value)));
    const focused = document.activeElement?.dataset?.example;
    table.replaceChildren();
    const titles = ["use", "task", ...columns.slice(0, 2), "truth", "prediction"];
    if (rival) titles.push("B says");
    if (classes) titles.push("probability");
    titles.push("between");
    if (sets) titles.push("right in 9 of 10");
    titles.push("unlearnt", "undecidable");
    head(table, titles);
    const body = document.createElement("tbody");
    examples.forEach((example, k) => {
      const row = document.createElement("tr");
      row.className = k === this.chosenRow ? "chosen" : "";
      const box = Object.assign(document.createElement("input"), { type: "checkbox", value: String(k), checked: ticked.has(k) });
      box.setAttribute("aria-label", `use row ${k + 1}`);
      cell(row, "").append(box);
      const open = Object.assign(document.createElement("button"), { type: "button", textContent: example.task });
      open.dataset.example = String(k);
      open.title = "show this input at the gate";
      open.addEventListener("click", () => { this.chosenRow = k; this.fillFields(); this.explorer.update(); });
      cell(row, "", "td", "text").append(open);
      for (const column of columns.slice(0, 2)) cell(row, shown(example.row[column]));
      cell(row, shown(example.label));
      const guess = String(answer.predictions[k]);
      const right = guess === String(example.label);
      cell(row, classes ? `${guess} ${right ? "✓" : "✗"}` : shown(answer.predictions[k]), "td", !classes ? "" : right ? "good" : "bad");
      if (rival) cell(row, shown(rival.predictions[k]));
      const column = classes ? Math.max(0, byId("class").selectedIndex) : 0;
      const lower = answer.bounds.lower[k][column], upper = answer.bounds.upper[k][column];
      if (classes) {
        const value = answer.probabilities[k][column];
        const place = cell(row, "", "td", "interval wide");
        place.append(Charts.interval(lower, value, upper, `${percent(value)}, between ${percent(lower)} and ${percent(upper)}`));
        const number = document.createElement("span");
        number.textContent = aligned(value);
        place.append(number);
        cell(row, `${aligned(lower)} – ${aligned(upper)}`, "td", "interval wide");
      } else {
        cell(row, `${Charts.plain(lower)} – ${Charts.plain(upper)}`);
      }
      if (sets) cell(row, this.setText(answer.sets[k]));
      cell(row, answer.uncertainty.epistemic[k].toFixed(3));
      cell(row, answer.uncertainty.aleatoric[k].toFixed(3));
      [...row.children].forEach((place, position) => { place.dataset.title = titles[position]; });
      body.append(row);
    });
    table.append(body);
    if (focused !== undefined) table.querySelector(`[data-example="${focused}"]`)?.focus();
  }

  setText(members) {
    if (!members.length) return "like nothing learnt";
    return this.overview.classes ? members.join(" or ") : members.map(Charts.plain).join(" – ");
  }

  // The gate.

  fillFields() {
    const { columns, examples } = this.overview;
    const row = examples[this.chosenRow]?.row ?? {};
    byId("fields").replaceChildren(...columns.map((name) => {
      const label = document.createElement("label");
      label.textContent = name;
      const value = Object.hasOwn(row, name) ? row[name] : null;
      const field = Object.assign(document.createElement("input"), { type: "text", value: typeof value === "number" ? Number(value.toPrecision(6)) : value ?? "" });
      field.dataset.column = name;
      field.placeholder = "missing";
      field.addEventListener("input", this.updateGate);
      label.append(field);
      return label;
    }));
  }

  fieldRow() {
    const fields = [...byId("fields").querySelectorAll("input")];
    return Object.fromEntries(fields.map((field) => [field.dataset.column, typed(field.value)]));
  }

  async showGate() {
    const { columns, tasks, version } = this.overview;
    if (!columns.length) return;
    const summary = byId("gate-summary");
    let answer;
    try {
      answer = await this.source.predict({ rows: [this.fieldRow()], preference: this.preference, version, routing: true });
    } catch (error) {
      summary.textContent = error.message;
      byId("gate").replaceChildren();
      return;
    }
    const shares = answer.routing.shares[0];
    const novelty = answer.routing.novelty[0];
    const certainty = answer.probabilities ? ` (${percent(Math.max(...answer.probabilities[0]))})` : "";
    const unknown = Object.keys(answer.unknown);
    summary.textContent = `Prediction: ${shown(answer.predictions[0])}${certainty}. Novelty ${Charts.plain(novelty)}` +
      ` (about 1 for inputs like those learnt${novelty > 3 ? "; this one is unlike all of them" : ""}).` +
      (unknown.length ? ` Never seen before, so without a say: the value of ${unknown.join(", ")}.` : "");
    Charts.bars(byId("gate"), { label: "shares of the tasks in this prediction", rows: tasks, largest: 1, format: percent,
      xLabel: "share",
      series: [{ name: "share in this prediction", swatch: "f0", stroke: "c0", values: tasks.map((task) => shares[task]) },
        { name: "weight in the preference", swatch: "hollow", stroke: "ink", values: tasks.map((task) => answer.preference[task]) }] });
  }

  // Finding a preference.

  async infer(rows, labels) {
    const found = await this.source.infer(rows, labels);
    const tasks = this.overview.tasks;
    const text = tasks.map((task) => `${task} ${percent(found.preference[task] ?? 0)} ± ${percent(found.std[task] ?? 0)}`).join(", ");
    byId("inferred").textContent = `From ${found.examples} example${found.examples === 1 ? "" : "s"}: ${text}. The sliders show it.`;
    this.explorer.first.set(tasks.map((task) => found.preference[task] ?? 0));
  }

  async inferTicked() {
    const chosen = [...byId("examples").querySelectorAll("input:checked")].map((box) => this.overview.examples[Number(box.value)]);
    if (!chosen.length) throw new Error("Tick at least one example row first.");
    await this.infer(chosen.map((one) => one.row), byId("use-labels").checked ? chosen.map((one) => one.label) : null);
  }

  async inferOwn() {
    const [names, ...rows] = readCsv(byId("own-rows").value);
    if (!rows.length) throw new Error("Give a line of column names and at least one row.");
    const wrong = rows.findIndex((row) => row.length !== names.length);
    if (wrong >= 0) throw new Error(`Row ${wrong + 1} has ${rows[wrong].length} values for ${names.length} columns; put values that hold a comma into quotation marks.`);
    const position = names.indexOf("label");
    const parsed = rows.map((row) => Object.fromEntries(names.map((name, k) => [name, typed(row[k])]).filter((_, k) => k !== position)));
    await this.infer(parsed, position < 0 ? null : rows.map((row) => row[position]));
  }

  // Taking it away.

  code() {
    const weights = Object.entries(this.preference).map(([task, weight]) => `${JSON.stringify(task)}: ${weight}`).join(", ");
    return `import ibcl\n\nlearner = ibcl.load(${JSON.stringify(this.overview.knowledge_base)})\nmodel = learner.model({${weights}})\n` +
      `# predictions = model.predict(frame)\n`;
  }

  async download(format) {
    byId("exported").textContent = "Making the file…";
    this.save(await this.source.model({ preference: this.preference, format, version: this.overview.version }), `model.${format}`);
  }

  save(blob, name) {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    byId("exported").textContent = `Saved ${name}.`;
  }
}

// Text is sent as it was typed: the knowledge base reads it as it reads a table, "007" as "007".
function typed(text) {
  return text.trim() === "" ? null : text;
}

function shown(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? Charts.plain(value) : String(value);
}

// Rows of values; those in quotation marks may hold commas, line ends, and quotation marks twice.
function readCsv(text) {
  const rows = [];
  let row = [], value = "", quoted = false, wasQuoted = false;
  const endValue = () => { row.push(wasQuoted ? value : value.trim()); value = ""; wasQuoted = false; };
  const endRow = () => { endValue(); if (row.length > 1 || row[0] !== "") rows.push(row); row = []; };
  for (let k = 0; k < text.length; k++) {
    const letter = text[k];
    if (quoted) {
      if (letter !== '"') value += letter;
      else if (text[k + 1] === '"') { value += '"'; k++; }
      else quoted = false;
    } else if (letter === '"' && value.trim() === "") { value = ""; quoted = wasQuoted = true; }
    else if (letter === ",") endValue();
    else if (letter === "\n") endRow();
    else if (letter !== "\r") value += letter;
  }
  if (quoted) throw new Error("A quotation mark is not closed.");
  endRow();
  return rows;
}
