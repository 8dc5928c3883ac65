"use strict";
// The explorer: asks the service whenever the preference changes, and shows what it answers.

const byId = (name) => document.getElementById(name);
const percent = Charts.percent;
// In tables, where numbers stand below each other.
const aligned = (value) => `${(100 * value).toFixed(1)}%`;
const POLL_MILLISECONDS = 1500;

let token = sessionStorage.getItem("token") ?? "";
let overview = null;
let chosenRow = 0;
let front = null;

async function ask(method, path, body) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (response.status === 401) byId("token-form").hidden = false;
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.error ?? `The service answered with status ${response.status}.`);
  }
  return response;
}

const get = async (path) => (await ask("GET", path)).json();
const post = async (path, body) => (await ask("POST", path, body)).json();

function say(text, fault = false) {
  const place = byId("news");
  place.hidden = !text;
  place.classList.toggle("fault", fault);
  place.textContent = text;
}

// Only the latest wish counts: while one request is under way, the ones in between are dropped.
let working = 0;

function busier(by) {
  working += by;
  document.querySelector("main").setAttribute("aria-busy", String(working > 0));
}

function latest(work) {
  let busy = false, again = false;
  return async function run() {
    if (busy) { again = true; return; }
    busy = true;
    busier(1);
    try {
      do { again = false; await work(); } while (again);
    } catch (error) {
      say(error.message, true);
    } finally {
      busy = false;
      busier(-1);
    }
  };
}

const first = new Sliders(byId("sliders"), () => update(), "");
const second = new Sliders(byId("sliders-second"), () => update(), " in preference B");
const comparing = () => !byId("second").hidden;
const versionOfSecond = () => byId("version-second").value || null;

// Rounded so that they can be read and typed; the largest takes what rounding leaves over.
function rounded(preference) {
  const entries = Object.entries(preference).map(([task, weight]) => [task, Math.round(weight * 1e6) / 1e6]);
  const total = entries.reduce((sum, [, weight]) => sum + weight, 0);
  const largest = entries.reduce((best, entry) => (entry[1] > best[1] ? entry : best), entries[0]);
  largest[1] = Math.max(0, Math.round((largest[1] + 1 - total) * 1e6) / 1e6);
  return Object.fromEntries(entries);
}

// A task that another version does not know gives its weight to the others.
function forVersion(preference, tasks) {
  const known = Object.fromEntries(Object.entries(preference).filter(([task]) => tasks.includes(task)));
  const total = Object.values(known).reduce((sum, weight) => sum + weight, 0);
  if (total <= 0) return Object.fromEntries(tasks.map((task) => [task, 1 / tasks.length]));
  return rounded(Object.fromEntries(Object.entries(known).map(([task, weight]) => [task, weight / total])));
}

let versions = [];
const tasksOf = (version) => versions.find((one) => one.version === version)?.tasks ?? overview.tasks;

function cell(row, text, kind = "td", classes = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  made.className = classes;
  row.append(made);
  return made;
}

function head(table, titles) {
  const row = document.createElement("tr");
  for (const title of titles) cell(row, title, "th", title === "task" ? "text" : "").scope = "col";
  const made = document.createElement("thead");
  made.append(row);
  table.append(made);
}

async function measure(sliders, place, version) {
  const tasks = tasksOf(version);
  const preference = forVersion(sliders.preference(), tasks);
  const begin = performance.now();
  const found = await post("/v1/explorer/measure", { preference, version });
  const milliseconds = performance.now() - begin;
  sliders.showScores(found.scores, overview.classes ? percent : Charts.plain);
  if (found.weighted === null) {
    place.textContent = "Start the service with --validation to see how good the model is on every task.";
    return found;
  }
  const figure = document.createElement("strong");
  figure.textContent = overview.classes ? aligned(found.weighted) : Charts.plain(found.weighted);
  const words = document.createElement("span");
  words.textContent = ` ${overview.classes ? "right" : "R²"}. Weighted by this preference; made and measured in ` +
    `${milliseconds.toFixed(0)} ms.`;
  place.replaceChildren(figure, words);
  return found;
}

const update = latest(async () => {
  if (!overview) return;
  showCode();
  const found = await measure(first, byId("summary"), overview.version);
  const other = comparing() ? await measure(second, byId("summary-second"), versionOfSecond()) : null;
  drawFront(found, other);
  if (other) showComparison(found, other);
  await showExamples();
  await showGate();
});

function showComparison(found, other) {
  const table = byId("comparison");
  table.replaceChildren();
  head(table, ["task", "weight A", "weight B", "right A", "right B", "B − A"]);
  const a = first.preference(), b = second.preference();
  const body = document.createElement("tbody");
  const show = overview.classes ? aligned : Charts.plain;
  const line = (name, wa, wb, ra, rb) => {
    const row = document.createElement("tr");
    cell(row, name); cell(row, wa); cell(row, wb);
    cell(row, ra === undefined || ra === null ? "–" : show(ra));
    cell(row, rb === undefined || rb === null ? "–" : show(rb));
    const both = typeof ra === "number" && typeof rb === "number";
    const difference = both ? rb - ra : 0;
    cell(row, !both ? "–" : `${difference > 0 ? "+" : difference < 0 ? "−" : "±"}${(100 * Math.abs(difference)).toFixed(1)}`, "td",
      difference > 0 ? "good" : difference < 0 ? "bad" : "");
    body.append(row);
  };
  for (const task of overview.tasks) line(task, aligned(a[task]), aligned(b[task] ?? 0), found.scores[task], other.scores[task]);
  line("weighted", "", "", found.weighted, other.weighted);
  table.append(body);
}

// The front.

const loadFront = latest(async () => {
  front = null;
  const x = byId("front-x").value, y = byId("front-y").value;
  if (!overview || overview.tasks.length < 2 || !Object.keys(overview.validation).length) {
    byId("front-note").textContent = "The trade-off shows with two tasks and validation rows.";
    byId("front").replaceChildren();
    return;
  }
  const query = new URLSearchParams({ first: x, second: y, version: overview.version });
  front = { ...(await get(`/v1/explorer/front?${query}`)), x, y };
  update();
});

function drawFront(found, other) {
  if (!front || front.version !== overview.version || !front.between[front.x] || !front.between[front.y]) return;
  const { x, y } = front;
  const steps = front.between[x].length - 1;
  const series = [
    { name: "models between the two tasks", shape: "circle", stroke: "c0", hollow: true, line: true, size: 3,
      points: front.between[x].map((value, k) => ({ x: value, y: front.between[y][k],
        title: `${x} ${percent(1 - k / steps)}, ${y} ${percent(k / steps)}` })) },
    { name: "one task alone", shape: "square", stroke: "c2", fill: "f2",
      points: front.vertices[x].map((value, k) => ({ x: value, y: front.vertices[y][k], label: front.tasks[k], title: `only ${front.tasks[k]}` })) },
    { name: comparing() ? "A" : "this preference", shape: "diamond", stroke: "ink", fill: "fink", size: 7,
      points: [{ x: found.scores[x], y: found.scores[y], label: comparing() ? "A" : "now" }] },
  ];
  if (other && typeof other.scores[x] === "number" && typeof other.scores[y] === "number") {
    series.push({ name: "B", shape: "triangle", stroke: "c1", fill: "f1", size: 7, points: [{ x: other.scores[x], y: other.scores[y], label: "B" }] });
  }
  Charts.scatter(byId("front"), { label: `trade-off between ${x} and ${y}`, series, ceiling: 1,
    format: overview.classes ? percent : Charts.plain,
    xLabel: `${overview.classes ? "right" : "R²"} on ${x}`, yLabel: `${overview.classes ? "right" : "R²"} on ${y}` });
  byId("front-note").textContent = "Up and to the right is better. The line moves all weight from one task to the other; squares are the models of single tasks.";
}

// Example inputs.

function shownClass() {
  return Math.max(0, byId("class").selectedIndex);
}

async function showExamples() {
  const table = byId("examples");
  const examples = overview.examples;
  byId("examples-note").textContent = examples.length
    ? "What this preference's model says: the mark is its probability, the band what the models of single tasks span (lower and upper probability). Tick rows to find the preference behind them."
    : "Start the service with --validation to see example inputs.";
  for (const name of ["infer", "use-labels"]) byId(name).disabled = !examples.length;
  if (!examples.length) { table.replaceChildren(); return; }
  const rows = examples.map((example) => example.row);
  const wanted = { rows, bounds: true, uncertainty: true, version: overview.version, preference: rounded(first.preference()) };
  if (overview.sets) wanted.set = 0.9;
  const answer = await post("/v1/predict", wanted);
  const rival = comparing() ? await post("/v1/predict", { rows, version: versionOfSecond(), preference: forVersion(second.preference(), tasksOf(versionOfSecond())) }) : null;
  const ticked = new Set([...table.querySelectorAll("input:checked")].map((box) => Number(box.value)));
  const focused = document.activeElement?.dataset?.example;
  table.replaceChildren();
  const titles = ["use", "task", ...overview.columns.slice(0, 2), "truth", "prediction"];
  if (rival) titles.push("B says");
  titles.push(overview.classes ? "probability" : "value", "between");
  if (overview.sets) titles.push("right in 9 of 10");
  titles.push("unlearnt", "undecidable");
  head(table, titles);
  const body = document.createElement("tbody");
  examples.forEach((example, k) => {
    const row = document.createElement("tr");
    row.className = k === chosenRow ? "chosen" : "";
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: String(k), checked: ticked.has(k) });
    box.setAttribute("aria-label", `use row ${k + 1}`);
    cell(row, "").append(box);
    const open = Object.assign(document.createElement("button"), { type: "button", textContent: example.task });
    open.dataset.example = String(k);
    open.title = "show this input at the gate";
    open.addEventListener("click", () => { chosenRow = k; fillFields(); update(); });
    cell(row, "", "td", "text").append(open);
    for (const column of overview.columns.slice(0, 2)) cell(row, show(example.row[column]));
    cell(row, show(example.label));
    const guess = String(answer.predictions[k]);
    const right = guess === String(example.label);
    cell(row, overview.classes ? `${guess} ${right ? "✓" : "✗"}` : show(answer.predictions[k]), "td", !overview.classes ? "" : right ? "good" : "bad");
    if (rival) cell(row, show(rival.predictions[k]));
    const column = overview.classes ? shownClass() : 0;
    const lower = answer.bounds.lower[k][column], upper = answer.bounds.upper[k][column];
    if (overview.classes) {
      const value = answer.probabilities[k][column];
      const text = `${percent(value)}, between ${percent(lower)} and ${percent(upper)}`;
      const place = cell(row, "", "td", "interval wide");
      place.append(Charts.interval(lower, value, upper, text));
      const number = document.createElement("span");
      number.textContent = aligned(value);
      place.append(number);
      cell(row, `${aligned(lower)} – ${aligned(upper)}`, "td", "interval wide");
    } else {
      cell(row, show(answer.predictions[k]));
      cell(row, `${Charts.plain(lower)} – ${Charts.plain(upper)}`);
    }
    if (overview.sets) cell(row, setText(answer.sets[k]));
    cell(row, answer.uncertainty.epistemic[k].toFixed(3));
    cell(row, answer.uncertainty.aleatoric[k].toFixed(3));
    [...row.children].forEach((place, position) => { place.dataset.title = titles[position]; });
    body.append(row);
  });
  table.append(body);
  if (focused !== undefined) table.querySelector(`[data-example="${focused}"]`)?.focus();
}

function setText(members) {
  if (!members.length) return "like nothing learnt";
  return overview.classes ? members.join(" or ") : members.map(Charts.plain).join(" – ");
}

function show(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? Charts.plain(value) : String(value);
}

// The gate.

function fillFields() {
  const row = overview.examples[chosenRow]?.row ?? Object.fromEntries(overview.columns.map((name) => [name, 0]));
  byId("fields").replaceChildren(...overview.columns.map((name) => {
    const label = document.createElement("label");
    label.textContent = name;
    const field = Object.assign(document.createElement("input"), { type: "text", value: typeof row[name] === "number" ? Number(row[name].toPrecision(6)) : row[name] ?? "" });
    field.dataset.column = name;
    field.addEventListener("input", updateGate);
    label.append(field);
    return label;
  }));
}

function typed(text) {
  if (text.trim() === "") return null;
  const number = Number(text);
  return Number.isFinite(number) ? number : text;
}

function fieldRow() {
  const fields = [...byId("fields").querySelectorAll("input")];
  return Object.fromEntries(fields.map((field) => [field.dataset.column, typed(field.value)]));
}

async function showGate() {
  const summary = byId("gate-summary");
  let answer;
  try {
    answer = await post("/v1/predict", { rows: [fieldRow()], preference: rounded(first.preference()), version: overview.version, routing: true });
  } catch (error) {
    summary.textContent = error.message;
    byId("gate").replaceChildren();
    return;
  }
  const shares = answer.routing.shares[0];
  const novelty = answer.routing.novelty[0];
  const certainty = answer.probabilities ? ` (${percent(Math.max(...answer.probabilities[0]))})` : "";
  summary.textContent = `Prediction: ${show(answer.predictions[0])}${certainty}. Novelty ${Charts.plain(novelty)}` +
    ` (about 1 for inputs like those learnt${novelty > 3 ? "; this one is unlike all of them" : ""}).`;
  Charts.bars(byId("gate"), { label: "shares of the tasks in this prediction", rows: overview.tasks, largest: 1, format: percent,
    xLabel: "share",
    series: [{ name: "share in this prediction", swatch: "f0", stroke: "c0", values: overview.tasks.map((task) => shares[task]) },
      { name: "weight in the preference", swatch: "hollow", stroke: "ink", values: overview.tasks.map((task) => answer.preference[task]) }] });
}

const updateGate = latest(showGate);

// Finding a preference.

async function infer(rows, labels) {
  const found = await post("/v1/infer", { rows, labels });
  const text = overview.tasks.map((task) => `${task} ${percent(found.preference[task] ?? 0)} ± ${percent(found.std[task] ?? 0)}`).join(", ");
  byId("inferred").textContent = `From ${found.examples} example${found.examples === 1 ? "" : "s"}: ${text}. The sliders show it.`;
  first.set(overview.tasks.map((task) => found.preference[task] ?? 0));
}

function fault(place, work) {
  return () => work().catch((error) => { byId(place).textContent = error.message; });
}

byId("infer").addEventListener("click", fault("inferred", async () => {
  const chosen = [...byId("examples").querySelectorAll("input:checked")].map((box) => overview.examples[Number(box.value)]);
  if (!chosen.length) throw new Error("Tick at least one example row first.");
  await infer(chosen.map((one) => one.row), byId("use-labels").checked ? chosen.map((one) => one.label) : null);
}));

byId("infer-own").addEventListener("click", fault("inferred", async () => {
  const lines = byId("own-rows").value.trim().split(/\r?\n/).map((line) => line.split(",").map((part) => part.trim()));
  if (lines.length < 2) throw new Error("Give a line of column names and at least one row.");
  const [names, ...rows] = lines;
  const position = names.indexOf("label");
  const parsed = rows.map((row) => Object.fromEntries(names.map((name, k) => [name, typed(row[k] ?? "")]).filter(([name]) => name !== "label")));
  await infer(parsed, position < 0 ? null : rows.map((row) => typed(row[position])));
}));

// Taking it away.

function code() {
  const weights = Object.entries(rounded(first.preference())).map(([task, weight]) => `${JSON.stringify(task)}: ${weight}`).join(", ");
  return `import ibcl\n\nlearner = ibcl.load(${JSON.stringify(overview.knowledge_base)})\nmodel = learner.model({${weights}})\n` +
    `# predictions = model.predict(frame)\n`;
}

function showCode() {
  byId("code").textContent = code();
}

function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  byId("exported").textContent = `Saved ${name}.`;
}

const download = (format) => fault("exported", async () => {
  const response = await ask("POST", "/v1/model", { preference: rounded(first.preference()), format, version: overview.version });
  save(await response.blob(), `model.${format}`);
});
byId("download").addEventListener("click", download("safetensors"));
byId("download-onnx").addEventListener("click", download("onnx"));
byId("download-code").addEventListener("click", () => save(new Blob([code()], { type: "text/x-python" }), "model.py"));
byId("copy-code").addEventListener("click", fault("exported", async () => {
  await navigator.clipboard.writeText(code());
  byId("exported").textContent = "Copied.";
}));

// The page as a whole.

function options(select, values, chosen) {
  select.replaceChildren(...values.map((value) => Object.assign(document.createElement("option"), { value: value.value ?? value, textContent: value.text ?? value })));
  if (values.some((value) => (value.value ?? value) === chosen)) select.value = chosen;
}

async function load() {
  const before = overview;
  overview = await get("/v1/explorer");
  versions = (await get("/v1/versions")).versions;
  byId("token-form").hidden = true;
  byId("name").textContent = overview.knowledge_base;
  byId("task-count").textContent = `${overview.tasks.length} task${overview.tasks.length === 1 ? "" : "s"}`;
  byId("version").textContent = `version ${overview.version.slice(0, 8)}`;
  byId("measure-name").textContent = overview.classes ? "right" : "R²";
  first.setTasks(overview.tasks);
  second.setTasks(overview.tasks);
  first.offer(byId("presets"));
  const [x, y] = [byId("front-x").value || overview.tasks[0], byId("front-y").value || overview.tasks.at(-1)];
  options(byId("front-x"), overview.tasks, x);
  options(byId("front-y"), overview.tasks, y);
  options(byId("class"), overview.classes ?? ["value"], before ? byId("class").value : (overview.classes ?? ["value"]).at(-1));
  options(byId("version-second"), versions.map((one) => ({ value: one.version, text: `${one.version.slice(0, 8)} (${one.tasks.length} tasks${one.active ? ", active" : ""})` })), overview.version);
  chosenRow = Math.min(chosenRow, Math.max(0, overview.examples.length - 1));
  if (!before || before.columns.join() !== overview.columns.join() || !byId("fields").children.length) fillFields();
  await loadFront();
  await update();
  return before;
}

async function look() {
  try {
    const { version } = await get("/ready");
    if (!overview || version !== overview.version) {
      const before = await load();
      if (before) {
        const learnt = overview.tasks.filter((task) => !before.tasks.includes(task));
        const gone = before.tasks.filter((task) => !overview.tasks.includes(task));
        say(learnt.length ? `The knowledge base has learnt ${learnt.join(", ")}; it starts with no weight.`
          : gone.length ? `The knowledge base no longer knows ${gone.join(", ")}.` : "The knowledge base has changed.");
      }
    }
  } catch (error) {
    say(error instanceof TypeError ? "The service does not answer; trying again." : error.message, true);
  }
  setTimeout(look, POLL_MILLISECONDS);
}

byId("compare").addEventListener("click", () => {
  const on = byId("second").hidden;
  byId("second").hidden = !on;
  byId("first-title").hidden = !on;
  byId("compare").setAttribute("aria-pressed", String(on));
  if (on) second.set(first.weights); else update();
});
for (const name of ["front-x", "front-y"]) byId(name).addEventListener("change", loadFront);
for (const name of ["class", "version-second"]) byId(name).addEventListener("change", update);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("token", token);
  say("");
  overview = null;
});
look();
